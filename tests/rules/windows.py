"""Windows made by hand, and those that were recorded; what rules are asked about in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from benchmarks.record_pairs import kept
from tests.traces.real import TRUTHS, path_of
from whyidle.monitor import rules
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import TraceJson
from whyidle.monitor.core.finding import Found, NotChecked, Severity, SourceLine, Verdict
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.ranking import Finding
from whyidle.monitor.rules import Rule
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.opening import of_answer
from whyidle.monitor.signals.portable import load
from whyidle.monitor.signals.recorded import Recorded, SeenGpu
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

ROOT = Path(__file__).parent.parent.parent
WINDOWS = ROOT / "tests" / "data" / "windows"
MS = 1_000_000


def rule(name: str) -> Rule:
    """Return a rule by its id."""
    return rules.load()[name]


def judge(name: str, window: Window) -> Verdict:
    """Ask one rule."""
    return rule(name).judge(window)


def found(name: str, window: Window) -> Found:
    """Ask one rule that must find its fault."""
    verdict = judge(name, window)
    assert isinstance(verdict, Found), verdict
    return verdict


def severity(name: str, finding: Found, measured: float | None = None) -> Severity:
    """Say how much a finding matters, where the account has so much of the time in it."""
    return Finding(rule(name), finding, measured).severity


def is_silent(name: str, window: Window) -> bool:
    """Ask one rule that must find nothing that is shown."""
    verdict = judge(name, window)
    return not isinstance(verdict, Found) or not verdict.is_worth_a_line


def cannot_judge(name: str, window: Window) -> bool:
    """Ask one rule that lacks its signals."""
    return isinstance(judge(name, window), NotChecked)


def answer(
    slices: Mapping[Slice, float],
    *,
    steps: int = 10,
    step_ms: float = 10.0,
    kind: str = "cpu",
    fmt: str = "kineto",
    details: Mapping[Slice, Mapping[str, float]] | None = None,
    calls: Mapping[str, float] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the answer of a trace; slices and details are shares, calls are per step."""
    total = int(steps * step_ms * MS)
    parts = {str(part): int(slices.get(part, 0.0) * total) for part in Slice}
    parts[Slice.IDLE_UNKNOWN] += total - sum(parts.values())
    by_part = {
        str(part): {label: int(share * total) for label, share in labels.items()}
        for part, labels in (details or {}).items()
    }
    budget = {"total_ns": total, "steps": steps, "slices": parts, "details": by_part}
    return {
        "schema": 1,
        "format": fmt,
        "window": None,
        "devices": [{"kind": kind, "index": "0", "budget": budget, "kernels": 0, "span_ns": total}],
        "steps": {"count": steps, "median_ns": int(step_ms * MS), "source": "markers"},
        "budget": budget,
        "step_budget": budget,
        "kernels": None,
        "launching": None,
        "copies": [],
        "collectives": [],
        "calls": [
            {"name": name, "count": int(n * steps), "total_ns": 0, "per_step": n}
            for name, n in (calls or {}).items()
        ],
        "where": [],
        "top_kernels": [],
        "top_operators": [],
        **more,
    }


def window(
    *answers: Mapping[str, Any],
    means: Mapping[Metric, float] | None = None,
    kind: str = "run",
    **job: Any,
) -> Window:
    """Return a window over traces and a recording."""
    traces = tuple(Traced(each, f"trace {i + 1}", 5.0) for i, each in enumerate(answers))
    recorded = Recorded(seconds=60.0, age_s=1.0, means=means or {}, **job)
    return Window("test", "run" if kind == "run" else "file", traces, recorded)


def stacks(
    *rows: tuple[SourceLine | CodeLine, Sequence[SourceLine | CodeLine], float], waited: float = 0
) -> StackSamples:
    """Return stack samples: the leaf, the user's lines below it if it is none, and how often."""
    found = StackSamples()
    for leaf, frames, samples in rows:
        first, *users = (CodeLine(x.file, x.line, x.function) for x in (leaf, *(frames or (leaf,))))
        found.samples += samples
        found.count(Chain(tuple(users), first), samples, samples, waited * samples)
    return found


@cache
def recorded(name: str) -> Window:
    """Return the window of a demo that was recorded: "input_starved/before_torch"."""
    stored = kept(WINDOWS / f"{name}.json.gz")
    return load(stored["window"])


def pairs(name: str) -> list[str]:
    """Return the frameworks that a rule's pair was recorded with."""
    found = sorted((WINDOWS / name).glob("before_*.json.gz"))
    return [path.name.removeprefix("before_").removesuffix(".json.gz") for path in found]


@cache
def traced(name: str) -> Window:
    """Return the window over one of the real traces, by the start of its name."""
    path = path_of(next(each for each in TRUTHS if each.startswith(name)))
    return of_answer(contract(analyse(path)), path.name)


def names(places: Sequence[Any]) -> list[str]:
    """Return the functions that places name."""
    return [place.function for place in places]


def on_a_gpu(seen: Window) -> Window:
    """Return a window of a CPU as if a GPU had done what the CPU computed, beside a free host."""
    budget = seen.budget
    total = sum(budget["slices"].values()) if budget else 0
    busy = {} if budget is None else {m.GPU_UTILISATION: budget["slices"][Slice.COMPUTE] / total}
    traces = tuple(
        replace(each, answer=cast(TraceJson, {**each.answer, "devices": [
            {**device, "kind": "gpu"} for device in each.answer["devices"]
        ]}))
        for each in seen.traces
    )  # fmt: skip
    facts = {name: {**said, "backend": "cuda"} for name, said in seen.job.facts.items()}
    gpus = (SeenGpu("0", "NVIDIA H200", owned=True, means=busy),)
    return replace(seen, traces=traces, job=replace(seen.job, facts=facts, gpus=gpus))

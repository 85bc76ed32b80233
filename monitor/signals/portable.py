"""A window as JSON and back: what a recorded job looked like, for tests and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

import msgspec

from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.metrics import METRICS, Metric
from whyidle.monitor.runs.aggregates import Compiled, ReadBack
from whyidle.monitor.runs.stacks import StackSamples
from whyidle.monitor.signals.drift import Drift
from whyidle.monitor.signals.opening import estimated
from whyidle.monitor.signals.recorded import (
    GpuUser,
    Helper,
    RankSeen,
    Recorded,
    SeenGpu,
    Serving,
    Trend,
)
from whyidle.monitor.signals.standstill import Stand, Standstill, Stopped
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window

_BY_NAME: Final = {f"{metric.scope}.{metric.name}": metric for metric in METRICS}
# Timelines and long lists are not needed to judge.
_OF_A_TRACE: Final = (
    "schema", "format", "events", "window", "devices", "steps", "budget", "step_budget", "kernels",
    "launching", "copies", "collectives", "calls", "where", "top_kernels", "top_operators",
    "hlo_modules", "missing", "warnings",
)  # fmt: skip
# A recorded window stays small enough to lie in a repository: some hundred kilobytes.
LONGEST_LIST: Final = 60
# The calls that are made once in a step come last in theirs.
LONGEST_OF: Final = {"calls": 120}
# Of all stacks together.
MOST_BYTES: Final = 1 << 20
MOST_CHAINS: Final = 400
# Fields of a recording that are rows of their own.
_ROWS: Final = {
    "compiled": Compiled, "reads": ReadBack, "lines": SourceLine, "leaves": SourceLine,
}  # fmt: skip

# And those that hold chains of lines.
_STACKS: Final = ("stacks", "holders", "threads", "short_lived")
_OF_GPUS: Final = ("means", "lasts", "highest", "rises")
_T = TypeVar("_T")


def dump(window: Window) -> JsonObject:
    """Return everything that rules can ask of a window."""
    names = [f.name for f in fields(Recorded) if f.name not in {*_STACKS, "helpers", "ranks_seen"}]
    data = {name: _plain(getattr(window.job, name)) for name in names}
    for name in _STACKS:
        data[name] = getattr(window.job, name).packed(MOST_BYTES, MOST_CHAINS)
    data["helpers"] = [
        {
            "cores": each.cores,
            "stacks": each.stacks.packed(MOST_BYTES, MOST_CHAINS),
            "threads": each.threads.packed(MOST_BYTES, MOST_CHAINS),
        }
        for each in window.job.helpers
    ]
    data["ranks_seen"] = [
        {
            **{name: _plain(getattr(each, name)) for name in ("rank", "pid", "means", "steps")},
            "stacks": each.stacks.packed(MOST_BYTES, MOST_CHAINS),
        }
        for each in window.job.ranks_seen
    ]
    return {
        "target": window.target,
        "kind": window.kind,
        "traces": [
            {
                "answer": {
                    name: value[: LONGEST_OF.get(name, LONGEST_LIST)]
                    if isinstance(value, list)
                    else value
                    for name, value in t.answer.items()
                    if name in _OF_A_TRACE
                },
                "source": t.source, "age_s": t.age_s,
                "held_s": t.held_s, "then": _plain(t.then),
            }
            for t in window.traces
        ],
        "job": data,
    }  # fmt: skip


def load(data: Mapping[str, Any]) -> Window:
    """Return a window that was dumped; metrics that are gone since are left out."""
    job = dict(data["job"])
    for name, row in _ROWS.items():
        job[name] = tuple(msgspec.convert(each, row) for each in job.get(name, ()))
    for name in _STACKS:
        job[name] = StackSamples.of_events([job.get(name, {})])
    job["helpers"] = tuple(
        Helper(
            each["cores"],
            # Older windows have only lines, by their shares.
            StackSamples.of_events([each.get("stacks") or {"samples": 1, "lines": each["lines"]}]),
            StackSamples.of_events([each.get("threads", {})]),
        )
        for each in job.get("helpers", ())
    )
    job["ranks_seen"] = tuple(
        RankSeen(
            each["rank"], each["pid"], StackSamples.of_events([each["stacks"]]),
            _metrics(each["means"], float), each["steps"],
        )
        for each in job.get("ranks_seen", ())
    )  # fmt: skip
    job["means"] = _metrics(job["means"], float)
    job["unknown"] = _metrics(job["unknown"], str)
    job["trends"] = _metrics(job["trends"], Trend)
    job["drift"] = msgspec.convert(job.get("drift"), Drift | None)
    if still := job.get("standstill"):
        parts: dict[str, Any] = {
            name: msgspec.convert(still[name], tuple[Stand, ...]) for name in ("stands", "helpers")
        }
        gpus, means = tuple(_metrics(gpu, float) for gpu in still["gpus"]), still["means"]
        parts |= {"means": _metrics(means, float), "gpus": gpus}
        job["standstill"] = Standstill(**still | parts)
    job["serving"] = msgspec.convert(job.get("serving"), Serving | None)
    job["stopped"] = msgspec.convert(job.get("stopped"), Stopped | None)
    job["ranges"] = _metrics(job.get("ranges", {}), tuple[float, float])
    job["gpus"] = tuple(
        SeenGpu(**{
            **gpu,
            **{name: _metrics(gpu.get(name, {}), float) for name in _OF_GPUS},
            "users": msgspec.convert(gpu.get("users", ()), tuple[GpuUser, ...]),
        })
        for gpu in job["gpus"]
    )  # fmt: skip
    job["events"] = {kind: tuple(some) for kind, some in job["events"].items()}
    recorded = Recorded(**job)
    traces = tuple(
        Traced(
            t["answer"], t["source"], t["age_s"], t.get("held_s"),
            tuple(_metrics(gpu, float) for gpu in t.get("then", ())),
        )
        for t in data["traces"]
    )  # fmt: skip
    estimate = estimated(recorded) if data["kind"] == "run" else None
    return Window(data["target"], data["kind"], traces, recorded, estimate)


def _metrics(data: Mapping[str, Any], kind: type[_T]) -> dict[Metric, _T]:
    return {
        _BY_NAME[name]: msgspec.convert(value, kind)
        for name, value in data.items()
        if name in _BY_NAME
    }


def _plain(value: Any) -> Any:
    """Return it in words and numbers; a metric by its name."""
    if isinstance(value, Mapping):
        return {
            f"{key.scope}.{key.name}" if isinstance(key, Metric) else str(key): _plain(each)
            for key, each in value.items()
        }
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return round(value, 9) if isinstance(value, float) else value

"""A store with one program before and after its fix: a loader that waits, then workers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.rules.windows import ROOT, answer
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.store.traces import NewTrace, put

SECONDS: Final = 60
PROGRAM: Final = "demo_workloads/input_starved"
# A name that a hostile job gives itself.
HOSTILE: Final = "<img src=nowhere onerror=window.hacked=1>"


@dataclass(frozen=True)
class Half:
    """One side: the time of its steps, and how that divides."""

    label: str
    step_ms: float
    parts: Mapping[Slice, float]
    line: int
    function: str
    workers: int


BEFORE: Final = Half(
    "before", 40.0, {Slice.COMPUTE: 0.30, Slice.IDLE_INPUT: 0.65, Slice.IDLE_DISPATCH: 0.05},
    30, "__getitem__", 0,
)  # fmt: skip
AFTER: Final = Half(
    "after", 18.0, {Slice.COMPUTE: 0.85, Slice.IDLE_DISPATCH: 0.15}, 45, "train", 2
)  # fmt: skip


def make(path: Path, *halves: Half, script: str | None = None, end: bool = True) -> list[int]:
    """Write a store with these runs, one after the other; returns their numbers."""
    halves = halves or (BEFORE, AFTER)
    now_ms = time.time_ns() // 1_000_000
    numbers = []
    for i, half in enumerate(halves):
        start_ms = now_ms - (len(halves) - i) * (SECONDS + 10) * 1000
        with Writer.open(path) as writer:
            numbers.append(_run(writer, half, start_ms, script))
            if end:
                writer.end_run(numbers[-1], "the job ended", 0)
        _trace(path, numbers[-1], half, start_ms + 20_000)
    return numbers


def file_of(half: Half) -> str:
    """Return the program of one side."""
    return f"{ROOT}/{PROGRAM}/{half.label}_torch.py"


def _run(writer: Writer, half: Half, start_ms: int, script: str | None) -> int:
    program = f"{PROGRAM}/{half.label}_torch.py"
    run = writer.begin_run(
        NewRun(
            label=half.label, started_ms=start_ms, hz=1.0, target_pid=1, target_start_ticks=1,
            command=f"python {program}", script=script or program, framework="torch 2.13.0",
            info={"gpus": [], "gpu_problem": "There is no NVIDIA driver here.",
                  "gpus_how": "no GPU is known", "processes": [_process(half)]},
        )
    )  # fmt: skip
    ticks = [
        Tick(start_ms + i * 1000, {Scope.JOB: {run: Reading(_job(half))}}) for i in range(SECONDS)
    ]
    assert writer.append_many(run, ticks)
    return run


def _job(half: Half) -> dict[Metric, float]:
    return {
        m.JOB_CPU: 1.0,
        m.JOB_MAIN_THREAD: 0.6,
        m.JOB_MAIN_THREAD_WAIT: 0.01,
        m.JOB_RSS: 1 << 30,
        m.JOB_STEPS: 1000 / half.step_ms,
        m.JOB_STEP_P50: half.step_ms / 1000,
        m.JOB_SAMPLES: 32_000 / half.step_ms,
        m.JOB_LOADER_WAIT: half.parts.get(Slice.IDLE_INPUT, 0.0),
        m.JOB_SYNC_WAIT: 0.0,
        m.JOB_GC_PAUSE: 0.0,
        m.JOB_COMPILE: 0.0,
        m.HOST_CORES: 8.0,
        m.HOST_CPU: 0.3,
    }


def _process(half: Half) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    steps = round(1000 / half.step_ms)
    took = rng.normal(half.step_ms, 0.03 * half.step_ms, SECONDS) * 1e6
    loader = {"workers": half.workers, "batch_size": 32, "kind": "map", "dataset": "Stored"}
    return {
        "pid": 1, "start_ticks": 1, "rank": None, "method": "run", "inside": True,
        "stops_ms": [], "refused": None, "next_step": None,
        "frameworks": {"torch": {"backend": "cpu", "batch_size": 32, "loaders": [loader]}},
        "counted": {
            "steps": steps * SECONDS, "source": "optimizer",
            "step_p50_ns": round(half.step_ms * 1e6), "step_p95_ns": round(half.step_ms * 1.06e6),
            "stretches": [[steps, round(steps * ns), round(ns)] for ns in took],
        },
    }  # fmt: skip


def _trace(path: Path, run: int, half: Half, ts_ms: int) -> None:
    place = {"file": file_of(half), "line": half.line, "function": half.function}
    where = [{**place, "slice": "idle_input", "share": 0.9, "ns": 1}]
    trace = answer(half.parts, step_ms=half.step_ms, where=where)
    put(path, NewTrace(run=run, format="kineto", path="/a/trace.json", ts_ms=ts_ms,
                       header={"answer": trace}))  # fmt: skip

"""A job that trains, made by hand."""

from __future__ import annotations

from typing import Any

from tests.render.snapshots import inside, snapshot
from tests.render.trace_answers import budget
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.snapshot import Member, Snapshot
from whyidle.monitor.tracing.trace_summary import TraceSummary

PACE = {
    m.JOB_STEPS: 41.23,
    m.JOB_STEP_P50: 0.02411,
    m.JOB_STEP_P95: 0.0263,
    m.JOB_SAMPLES: 2638.0,
}
WAITS = {m.JOB_LOADER_WAIT: 0.45, m.JOB_SYNC_WAIT: 0.0, m.JOB_COMPILE: 0.0, m.JOB_GC_PAUSE: 0.011}
FACTS = {
    "version": "2.13.0",
    "backend": "cuda",
    "model": "ResNet",
    "parameters": 11_181_642,
    "dtypes": {"bfloat16": 64, "float32": 11_181_578},
    "batch_size": 64,
    "loaders": [{"workers": 4, "pin_memory": True, "prefetch_factor": 2}, {"workers": 0}],
    "parallel": "DistributedDataParallel",
    "world_size": 2,
    "devices": 2,
    "devices_used": 1,
}


def worker(rank: int | None = 0, **known: Any) -> Member:
    values = {m.PROCESS_STEP_P50: 0.0241, m.PROCESS_LOADER_WAIT: 0.45, m.PROCESS_GC_PAUSE: 0.011}
    given = {
        "framework": {"torch": FACTS}, "steps_source": "optimizer", "reading": Reading(values),
        **known,
    }  # fmt: skip
    return inside(4001 + (rank or 0), rank, **given)


def trace(kinds: tuple[str, ...] = ("gpu",), age: float = 12.0, **slices: int) -> TraceSummary:
    """Return a trace that ``snapshot`` sees at this age."""
    given: dict[str, Any] = {"step_budget": None, "steps": {}, "format": "kineto"}
    return TraceSummary(
        trace=1,
        key=ProcessKey(4001, 1),
        rank=None,
        framework="torch",
        how="the agent",
        ts_ms=1_700_000_000_000 - int(age * 1000),
        at=88.0,
        seconds=0.25,
        held_ns=3_000_000,
        budget=budget(**slices),
        kinds=kinds,
        **given,
    )


def job(*members: Member, **known: Any) -> Snapshot:
    return snapshot(*(members or (worker(),)), **{"job": Reading(PACE | WAITS), **known})

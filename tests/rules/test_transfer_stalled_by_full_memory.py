"""The rule transfer_stalled_by_full_memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.device_memory import GB, TOTAL, gpu, torch
from tests.rules.windows import answer, cannot_judge, found, judge, names, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.drift import Drift
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window

NAME = "transfer_stalled_by_full_memory"
FILLED = (gpu(used=79.0 * GB),)


def trace(ns: int, waited: float) -> dict[str, Any]:
    copy = {
        "direction": "host to device", "memory": "pinned", "count": 10, "bytes": 1 << 30,
        "total_ns": ns,
    }  # fmt: skip
    parts = {Slice.COMPUTE: 0.6, Slice.EXPOSED_COPY: waited / 2, Slice.IDLE_ALLOC: waited / 2}
    return answer(parts, kind="gpu", copies=[copy])


def traced(old: dict[str, Any], new: dict[str, Any], **more: Any) -> Window:
    job = torch(gpus=more.pop("gpus", FILLED), **more)
    return Window(
        "test", "run", (Traced(new, "trace 2", 5.0), Traced(old, "trace 1", 200.0)), job.job
    )


def test_copies_that_have_slowed_down_in_a_full_memory() -> None:
    finding = found(NAME, traced(trace(50_000_000, 0.05), trace(200_000_000, 0.25)))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.1)
    assert finding.gain.high == pytest.approx(0.2)
    said = {each.name: each.value for each in finding.evidence}
    assert said["time of a copy, compared with an earlier trace"] == pytest.approx(4.0)


def test_one_of_both_alone_is_not_enough() -> None:
    slower = trace(50_000_000, 0.05), trace(200_000_000, 0.25)
    assert judge(NAME, traced(*slower, gpus=(gpu(used=60.0 * GB),))) is None
    assert judge(NAME, traced(trace(50_000_000, 0.05), trace(55_000_000, 0.06))) is None


def test_copies_that_slow_down_and_that_nobody_waits_for() -> None:
    assert judge(NAME, traced(trace(50_000_000, 0.05), trace(200_000_000, 0.04))) is None


def drifting(tmp_path: Path, code: str, **more: Any) -> Window:
    file = tmp_path / "train.py"
    file.write_text(f"def train(x):\n    {code}\n")
    lines = (SourceLine(str(file), 2, "train", 0.8),)
    return torch(drift=Drift(0.1, 0.2, 0.15, 0.9, lines), gpus=FILLED, **more)


def test_steps_that_grow_at_a_line_that_copies(tmp_path: Path) -> None:
    retries = {m.PROCESS_ALLOC_RETRIES: 0.5}
    finding = found(NAME, drifting(tmp_path, "x = x.to(device)", means=retries))
    assert names(finding.where) == ["train"]
    assert finding.confidence is Confidence.INFERRED
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == (0.0, pytest.approx(0.4))
    # No allocation had to wait: then it may be anything else about that line.
    assert found(NAME, drifting(tmp_path, "x = x.to(device)")).severity is Severity.LOW


def test_steps_that_grow_elsewhere_are_another_fault(tmp_path: Path) -> None:
    assert judge(NAME, drifting(tmp_path, "history = history + [x]")) is None


def test_without_two_traces_or_steps_it_is_not_judged() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, torch(gpus=FILLED))


def in_julia(used: float, rise: float | None, gc: float | None = 0.3) -> Window:
    means = {} if gc is None else {m.JOB_GC_PAUSE: gc}
    seen = gpu(used=used * TOTAL)
    rises = {} if rise is None else {m.GPU_PCIE_RX: rise}
    facts = {"julia": {"backend": "cuda"}}
    return window(means=means, gpus=(replace(seen, rises=rises),), facts=facts)


def test_of_julia_a_full_memory_more_copies_and_a_busy_collector_together() -> None:
    finding = found(NAME, in_julia(0.97, 2.0))
    assert finding.gain is None
    # By counters alone it is a hint.
    assert finding.severity is Severity.LOW
    assert [each.source for each in finding.evidence] == ["nvml", "nvml", "procfs"]


def test_of_julia_none_of_them_alone() -> None:
    assert judge(NAME, in_julia(0.97, 1.1)) is None
    assert judge(NAME, in_julia(0.80, 2.0)) is None
    assert judge(NAME, in_julia(0.97, 2.0, gc=0.01)) is None


def test_of_julia_without_the_counters_nothing_is_said() -> None:
    assert cannot_judge(NAME, in_julia(0.97, None))
    assert cannot_judge(NAME, in_julia(0.97, 2.0, gc=None))

"""The rule memory_stalls."""

from __future__ import annotations

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice

NAME = "memory_stalls"
FIXES: dict[str, tuple[str, str]] = {}
GIB = float(1 << 30)
SLOWED: dict[Metric, float] = {
    m.JOB_MEMORY_STALL: 0.4, m.JOB_MEMORY_STALL_ALL: 0.25, m.JOB_MAJOR_FAULTS: 30.0,
    m.JOB_MEMORY_HIGH: 16 * GIB, m.JOB_MEMORY_LIMIT: 32 * GIB, m.JOB_MEMORY_USED: 16 * GIB,
}  # fmt: skip
SWAPS: dict[Metric, float] = {
    m.JOB_MAJOR_FAULTS: 900.0, m.HOST_SWAPPED_IN: 4e6, m.JOB_SWAP: 2 * GIB,
}  # fmt: skip


def test_a_job_that_is_slowed_above_memory_high() -> None:
    finding = found(NAME, window(means=SLOWED))
    assert finding.title == "The job waits for memory: it is above its memory.high"
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.25, 0.4))
    assert finding.fixes is not None
    assert "MemoryHigh=20G" in finding.fixes["jax"].text


def test_at_its_limit_file_pages_come_and_go() -> None:
    means = SLOWED | {m.JOB_MEMORY_HIGH: 64 * GIB, m.JOB_MEMORY_USED: 31 * GIB}
    finding = found(NAME, window(means=means))
    assert finding.title == "The job waits for memory: it is at its limit"
    assert finding.fixes is not None
    assert "--mem=39G" in finding.fixes["pytorch"].text


def test_a_gpu_that_computes_meanwhile_loses_nothing() -> None:
    trace = answer({Slice.COMPUTE: 0.9}, kind="gpu")
    finding = found(NAME, window(trace, means=SLOWED))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.1)


def test_a_job_that_is_read_back_from_swap_where_waits_are_not_counted() -> None:
    finding = found(NAME, window(means=SWAPS))
    assert finding.title == "The job waits for memory: the machine has too little"
    assert (finding.gain, finding.severity) == (None, Severity.MEDIUM)


@pytest.mark.parametrize(
    "healthy",
    [
        # Swap that others use; swap of its own that it does not touch; files read through a map.
        {m.JOB_SWAP: 0.0},
        {m.JOB_MAJOR_FAULTS: 0.1},
        {m.HOST_SWAPPED_IN: 0.0},
        # The kernel counts waits, and there are none.
        {m.JOB_MEMORY_STALL: 0.004},
    ],
)
def test_swap_that_costs_it_nothing(healthy: dict[Metric, float]) -> None:
    assert judge(NAME, window(means=SWAPS | healthy)) is None


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())

"""The first trace of a job that is soon over: early, and not of its beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recording.seated import Caught
from tests.recording.test_traces import KEY, tracked
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.recording.traces import Traces, in_order
from whyidle.monitor.recording.tracked_process import TrackedProcess
from whyidle.monitor.tracing.policy import SETTLED_SECONDS, Outcome, Sign

EARLY = 3.0


def traces(store: Path, settled: float = EARLY) -> Traces:
    return Traces(
        KEY,
        store / DATABASE,
        1,
        share=0.1,
        named_ms=lambda t: int(t * 1000),
        settled=settled,
        guard=Caught(),
    )


def calm(found: Traces, compiling: list[float], at: float = 5.0) -> bool:
    """Return how it ends after ticks at which this share of the time went into compiling."""
    job: TrackedProcess = tracked(7)
    is_calm = False
    for i, share in enumerate(compiling):
        job.agent_stats.latest.put(m.PROCESS_COMPILE, share, "")
        is_calm = found._is_calm(job, at + i / 10)
    return is_calm


def test_a_job_is_entered_for_as_long_as_was_asked_before_it_is_traced() -> None:
    assert in_order([tracked(7, entered=0.0)], EARLY + 0.1) == []
    assert in_order([tracked(7, entered=0.0)], EARLY - 0.1, EARLY) == []
    assert len(in_order([tracked(7, entered=0.0)], EARLY + 0.1, EARLY)) == 1


@pytest.mark.parametrize(
    ("compiling", "expected"),
    [
        ([0.0, 0.0], True),
        ([0.9, 0.8, 0.7], True),
        ([0.9, 0.8], False),
        ([0.5, 0.7, 0.9], False),
        ([0.9, 0.8, 0.7, 0.75], False),
    ],
)
def test_a_job_that_still_compiles_is_not_traced_early(
    tmp_path: Path, compiling: list[float], *, expected: bool
) -> None:
    assert calm(traces(tmp_path), compiling) is expected


def test_after_the_usual_time_or_without_the_wish_compiling_hinders_nothing(tmp_path: Path) -> None:
    assert calm(traces(tmp_path), [0.5, 0.9], at=SETTLED_SECONDS + 1)
    assert calm(traces(tmp_path, SETTLED_SECONDS), [0.5, 0.9])


@pytest.mark.parametrize(("steps", "is_asked_again"), [(0, True), (40, False)])
def test_an_early_trace_without_a_step_is_not_the_last(
    tmp_path: Path, steps: int, *, is_asked_again: bool
) -> None:
    policy = traces(tmp_path)._scheduler.policy
    policy.taken(KEY, 5.0, Outcome(0.25, {}, steps), starved=None)
    assert policy.wants(8.0, starved=None) is is_asked_again


def test_a_gpu_is_believed_to_wait_as_early_as_a_trace_may_come() -> None:
    sign = Sign(EARLY)
    assert [sign.look(now, low=True) for now in (0.0, 1.0, 2.0, 3.0)] == [False, False, False, True]

"""Events of a run stay few, and what is left out is counted."""

from __future__ import annotations

from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.recording.stats import event_limits as module
from whyidle.monitor.recording.stats.event_limits import (
    LEFT_OUT,
    MOST_OF_A_KIND,
    MOST_STACKS,
    Quota,
)
from whyidle.monitor.runs.summary import ROLLING

ROOT = ProcessKey(1, 1)


def some(kind: str, count: int) -> list[JobEvent]:
    return [JobEvent(kind, ROOT, "again")] * count


def test_after_many_of_a_kind_only_their_number_is_kept() -> None:
    quota = Quota(ROOT)
    assert len(quota.admit(some("exec", MOST_OF_A_KIND), 0.0)) == MOST_OF_A_KIND
    assert quota.admit(some("exec", 5), 10.0) == []
    assert len(quota.admit(some("another", 1), 11.0)) == 1
    (admitted,) = quota.admit(some("exec", 3), 10.0 + module.MINUTE)
    assert admitted.kind == LEFT_OUT
    assert admitted.data is not None
    assert admitted.data["count"] == 8
    assert quota.admit(some("exec", 1), 80.0 + module.MINUTE) == []
    (last,) = quota.admit([], 81.0 + module.MINUTE, ending=True)
    assert last.data is not None
    assert last.data["count"] == 1


def test_a_week_of_the_same_is_stored_seldom() -> None:
    quota = Quota(ROOT)
    admitted = [
        event
        for minute in range(7 * 24 * 60)
        for event in quota.admit(some("exec", 100), 60.0 * minute)
        if event.kind == LEFT_OUT
    ]
    assert len(admitted) < 7 * 24 + 10


def test_of_what_a_summary_is_made_of_some_are_kept_all_the_time() -> None:
    quota = Quota(ROOT)
    for kind in ROLLING:
        quota.admit(some(kind, MOST_STACKS), 0.0)
    for minute in range(1, 5):
        for kind in ROLLING:
            kept = quota.admit(some(kind, 10), 60.0 * minute)
            assert [e.kind for e in kept].count(kind) == module.STACKS_A_MINUTE

"""What a process has done since the recording began."""

from __future__ import annotations

import pytest

from tests.recording.records import KEY, gauges, steps, take
from whyidle.agents import wire
from whyidle.monitor.recording.counted import TOTALS, Counted, has_any
from whyidle.monitor.recording.harvest import Harvest


def test_steps_are_counted_whatever_few_of_them_are_told() -> None:
    counted = Counted()
    harvest = Harvest(KEY, counted)
    for second in range(1, 11):
        take(harvest, steps(second, *([10.0] * 60), *([100.0] * 4), count=640))
    told = counted.told()
    assert (told["steps"], told["source"]) == (6400, "optimizer")
    assert told["step_p50_ns"] == pytest.approx(10e6, rel=0.02)
    assert told["step_p95_ns"] == pytest.approx(100e6, rel=0.02)


def test_steps_of_another_kind_are_not_added() -> None:
    counted = Counted()
    harvest = Harvest(KEY, counted)
    take(harvest, steps(1, *([10.0] * 60)), steps(2, 50, 50, source="whyidle.step"))
    assert counted.told()["steps"] == 2


def test_totals_grow_from_when_they_were_first_seen_and_through_another_agent() -> None:
    counted = Counted()
    first = Harvest(KEY, counted)
    take(first, gauges(1, loader_wait_ns=500), gauges(3, loader_wait_ns=700, samples=64))
    second = Harvest(KEY, counted)
    take(second, gauges(100, loader_wait_ns=0), gauges(102, loader_wait_ns=40))
    told = counted.told()
    assert told["totals"] == {wire.LOADER_WAIT_NS: [240, 4.0]}
    assert told["steps"] is None
    assert has_any(told)


def test_who_told_nothing_has_nothing() -> None:
    assert not has_any(Counted().told())


def test_nonsense_counts_nothing() -> None:
    counted = Counted()
    harvest = Harvest(KEY, counted)
    absurd = (2.0**62, -1.0, 1e300, float("nan"), None, 5.0)
    for second, value in enumerate(absurd):
        take(harvest, gauges(second, **dict.fromkeys((*TOTALS, "another"), value)))
    for total, _ in counted.told()["totals"].values():
        assert 0 <= total < 2**63
    assert len(counted._last) == len(TOTALS)


def test_samples_a_second_are_over_the_time_in_which_there_were_any() -> None:
    counted = Counted()
    harvest = Harvest(KEY, counted)
    for second, samples in enumerate((0, 0, 0, 64, 128)):
        take(harvest, gauges(second, samples=samples))
    assert counted.told()["totals"] == {wire.SAMPLES: [64, 1.0]}

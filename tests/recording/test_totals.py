"""What a process has done since the recording began."""

from __future__ import annotations

import pytest

from tests.recording.records import KEY, gauges, steps, take
from whyidle.agents import wire
from whyidle.monitor.recording.agent_stats import AgentStats
from whyidle.monitor.recording.totals import TOTALS, ProcessTotals, has_any


def test_steps_are_counted_whatever_few_of_them_are_told() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    for second in range(1, 11):
        take(agent_stats, steps(second, *([10.0] * 60), *([100.0] * 4), count=640))
    told = counted.told()
    assert (told["steps"], told["source"]) == (6400, "optimizer")
    assert told["step_p50_ns"] == pytest.approx(10e6, rel=0.02)
    assert told["step_p95_ns"] == pytest.approx(100e6, rel=0.02)


def test_steps_of_another_kind_are_not_added() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    take(agent_stats, steps(1, *([10.0] * 60)), steps(2, 50, 50, source="whyidle.step"))
    assert counted.told()["steps"] == 2


def test_totals_grow_from_when_they_were_first_seen_and_through_another_agent() -> None:
    counted = ProcessTotals()
    first = AgentStats(KEY, counted)
    take(first, gauges(1, loader_wait_ns=500), gauges(3, loader_wait_ns=700, samples=64))
    second = AgentStats(KEY, counted)
    take(second, gauges(100, loader_wait_ns=0), gauges(102, loader_wait_ns=40))
    told = counted.told()
    assert told["totals"] == {wire.LOADER_WAIT_NS: [240, 4.0]}
    assert told["steps"] is None
    assert has_any(told)


def test_who_told_nothing_has_nothing() -> None:
    assert not has_any(ProcessTotals().told())


def test_nonsense_counts_nothing() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    absurd = (2.0**62, -1.0, 1e300, float("nan"), None, 5.0)
    for second, value in enumerate(absurd):
        take(agent_stats, gauges(second, **dict.fromkeys((*TOTALS, "another"), value)))
    for total, _ in counted.told()["totals"].values():
        assert 0 <= total < 2**63
    assert len(counted._last) == len(TOTALS)


def test_samples_a_second_are_over_the_time_in_which_there_were_any() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    for second, samples in enumerate((0, 0, 0, 64, 128)):
        take(agent_stats, gauges(second, samples=samples))
    assert counted.told()["totals"] == {wire.SAMPLES: [64, 1.0]}

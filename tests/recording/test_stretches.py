"""The steps of a recording in few stretches: as many as fit, in their order, nothing lost."""

from __future__ import annotations

import pytest

from tests.recording.records import KEY, SECOND, steps, take
from whyidle.monitor.recording.agent_stats import AgentStats
from whyidle.monitor.recording.stretches import MOST, Stretches
from whyidle.monitor.recording.totals import ProcessTotals

MS = 1_000_000


def test_a_stretch_is_a_second_and_the_first_record_only_begins() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    take(agent_stats, *(steps(second, 10.0, 10.0, 30.0) for second in range(1, 5)))
    assert counted.told()["stretches"] == [[3, 50 * MS, 10 * MS]] * 3


def test_of_many_steps_a_second_the_whole_second_counts() -> None:
    """Of these not all durations are told, and pauses between them must not get lost."""
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    take(agent_stats, *(steps(second, *[1.0] * 60, count=600) for second in range(1, 3)))
    assert counted.told()["stretches"] == [[600, SECOND, MS]]


def test_a_long_recording_has_no_more_stretches_and_loses_no_step() -> None:
    stretches = Stretches()
    for second in range(10 * MOST + 1):
        # It gets slower: what came first stays first.
        stretches.take(second * SECOND, 2, [(1 + second) * MS] * 2)
    told = stretches.told()
    assert MOST / 2 <= len(told) <= MOST
    assert sum(count for count, _, _ in told) == 20 * MOST
    middles = [middle for _, _, middle in told]
    assert middles == sorted(middles)
    assert told[0][2] == pytest.approx(told[0][1] / told[0][0], rel=0.3)


def test_the_time_between_two_agents_is_nobodys() -> None:
    stretches = Stretches()
    for moment in (1, 2):
        stretches.take(moment * SECOND, 100, [MS])
    stretches.begin()
    for moment in (100, 101):
        stretches.take(moment * SECOND, 100, [MS])
    assert [ns for _, ns, _ in stretches.told()] == [SECOND, SECOND]


def test_clocks_that_go_back_and_steps_without_a_time_count_nothing() -> None:
    stretches = Stretches()
    for moment, durations in ((5, [MS]), (4, [MS]), (4, [MS]), (9, []), (10, [0])):
        stretches.take(moment * SECOND, 100, durations)
    assert stretches.told() == []

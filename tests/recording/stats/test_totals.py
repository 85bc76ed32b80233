"""What a whole recording adds up to: spreads, stretches, totals."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recording.records import KEY, SECOND, gauges, steps, take
from whyidle.agents import wire
from whyidle.monitor.core.metrics import STEP_BOUNDS_S
from whyidle.monitor.recording.stats.agent_stats import AgentStats
from whyidle.monitor.recording.stats.totals import (
    BINS,
    LONGEST_NS,
    MOST_STRETCHES,
    TOTALS,
    ProcessTotals,
    Spread,
    Stretches,
    has_any,
    quantile,
)

DURATIONS = st.lists(st.integers(1, 10**12), min_size=1, max_size=200)
SHARES = st.sampled_from([0.5, 0.95, 1.0])


@given(st.lists(DURATIONS, min_size=1, max_size=5), SHARES)
def test_merged_in_whole_they_have_the_quantile_of_all(
    records: list[list[int]], share: float
) -> None:
    everything = sorted(ns for record in records for ns in record)
    place = math.ceil(Fraction(str(share)) * len(everything)) - 1
    assert quantile([(ns, 1) for ns in everything], share) == everything[place]


@given(DURATIONS, st.integers(2, 64), SHARES)
def test_a_few_of_them_evenly_picked_are_off_by_a_few_places(
    durations: list[int], picks: int, share: float
) -> None:
    ordered = sorted(durations)
    last, few = len(ordered) - 1, min(picks, len(ordered))
    picked = [ordered[i * last // max(few - 1, 1)] for i in range(few)]
    found = quantile([(ns, len(ordered) / few) for ns in picked], share)
    off = len(ordered) // few + 2
    place = math.ceil(share * len(ordered)) - 1
    assert found is not None
    assert ordered[max(0, place - off)] <= found <= ordered[min(last, place + off)]


@given(st.lists(st.tuples(st.floats(0, 1e12), st.floats(0, 1e6)), max_size=50))
def test_a_greater_share_is_never_shorter(weighed: list[tuple[float, float]]) -> None:
    half, most = quantile(weighed, 0.5), quantile(weighed, 0.95)
    assert (half is None) == (most is None) == all(weight == 0 for _, weight in weighed)
    assert half is None or (most is not None and half <= most)


@given(DURATIONS, SHARES)
def test_in_bins_they_are_off_by_no_more_than_half_a_bin(
    durations: list[int], share: float
) -> None:
    spread = Spread()
    spread.add(durations, 1)
    exact, found = quantile([(ns, 1) for ns in durations], share), spread.quantile(share)
    assert exact is not None
    assert found is not None
    assert abs(math.log2(found / exact)) <= 0.51 / BINS


def test_a_histogram_counts_all_that_came() -> None:
    spread = Spread()
    spread.add([4_000_000, 40_000_000], 2)
    spread.add([40_000_000_000_000], 1)
    counts, took = spread.histogram()
    below = dict(zip((*STEP_BOUNDS_S, math.inf), counts, strict=True))
    assert (below[0.0025], below[0.005], below[0.05], below[60.0]) == (0, 2, 4, 4)
    assert below[math.inf] == 5
    assert took == pytest.approx(40_000_088_000_000, rel=0.02)
    assert counts == sorted(counts)
    assert Spread().histogram()[1] == 0


def test_bins_stay_few_whatever_comes() -> None:
    spread = Spread()
    for exponent in range(200):
        spread.add([2**exponent + part for part in range(64)], 1)
    spread.add([0], 1)
    assert len(spread._bins) <= BINS * math.log2(LONGEST_NS) + 1
    assert Spread().quantile(0.5) is None


MS = 1_000_000


def test_a_stretch_is_a_second_and_the_first_record_only_begins() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    take(agent_stats, *(steps(second, 10.0, 10.0, 30.0) for second in range(1, 5)))
    assert counted.as_json()["stretches"] == [[3, 50 * MS, 10 * MS]] * 3


def test_of_many_steps_a_second_the_whole_second_counts() -> None:
    """Not all durations of these are recorded, and pauses between them must not get lost."""
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    take(agent_stats, *(steps(second, *[1.0] * 60, count=600) for second in range(1, 3)))
    assert counted.as_json()["stretches"] == [[600, SECOND, MS]]


def test_a_long_recording_has_no_more_stretches_and_loses_no_step() -> None:
    stretches = Stretches()
    for second in range(10 * MOST_STRETCHES + 1):
        # It gets slower: what came first stays first.
        stretches.take(second * SECOND, 2, [(1 + second) * MS] * 2)
    found = stretches.as_json()
    assert MOST_STRETCHES / 2 <= len(found) <= MOST_STRETCHES
    assert sum(count for count, _, _ in found) == 20 * MOST_STRETCHES
    middles = [middle for _, _, middle in found]
    assert middles == sorted(middles)
    assert found[0][2] == pytest.approx(found[0][1] / found[0][0], rel=0.3)


def test_the_time_between_two_agents_is_nobodys() -> None:
    stretches = Stretches()
    for moment in (1, 2):
        stretches.take(moment * SECOND, 100, [MS])
    stretches.begin()
    for moment in (100, 101):
        stretches.take(moment * SECOND, 100, [MS])
    assert [ns for _, ns, _ in stretches.as_json()] == [SECOND, SECOND]


def test_clocks_that_go_back_and_steps_without_a_time_count_nothing() -> None:
    stretches = Stretches()
    for moment, durations in ((5, [MS]), (4, [MS]), (4, [MS]), (9, []), (10, [0])):
        stretches.take(moment * SECOND, 100, durations)
    assert stretches.as_json() == []


def test_steps_are_counted_however_few_of_them_are_recorded() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    for second in range(1, 11):
        take(agent_stats, steps(second, *([10.0] * 60), *([100.0] * 4), count=640))
    sums = counted.as_json()
    assert (sums["steps"], sums["source"]) == (6400, "optimizer")
    assert sums["step_p50_ns"] == pytest.approx(10e6, rel=0.02)
    assert sums["step_p95_ns"] == pytest.approx(100e6, rel=0.02)


def test_steps_of_another_kind_are_not_added() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    take(agent_stats, steps(1, *([10.0] * 60)), steps(2, 50, 50, source="whyidle.step"))
    assert counted.as_json()["steps"] == 2


def test_totals_grow_from_when_they_were_first_seen_and_through_another_agent() -> None:
    counted = ProcessTotals()
    first = AgentStats(KEY, counted)
    take(first, gauges(1, loader_wait_ns=500), gauges(3, loader_wait_ns=700, samples=64))
    second = AgentStats(KEY, counted)
    take(second, gauges(100, loader_wait_ns=0), gauges(102, loader_wait_ns=40))
    sums = counted.as_json()
    assert sums["totals"] == {wire.LOADER_WAIT_NS: [240, 4.0]}
    assert sums["steps"] is None
    assert has_any(sums)


def test_without_records_there_are_no_totals() -> None:
    assert not has_any(ProcessTotals().as_json())


def test_nonsense_counts_nothing() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    absurd = (2.0**62, -1.0, 1e300, float("nan"), None, 5.0)
    for second, value in enumerate(absurd):
        take(agent_stats, gauges(second, **dict.fromkeys((*TOTALS, "another"), value)))
    for total, _ in counted.as_json()["totals"].values():
        assert 0 <= total < 2**63
    assert len(counted._last) == len(TOTALS)


def test_samples_a_second_are_over_the_time_in_which_there_were_any() -> None:
    counted = ProcessTotals()
    agent_stats = AgentStats(KEY, counted)
    for second, samples in enumerate((0, 0, 0, 64, 128)):
        take(agent_stats, gauges(second, samples=samples))
    assert counted.as_json()["totals"] == {wire.SAMPLES: [64, 1.0]}

"""Merged durations: what a share of them stays under."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from whyidle.monitor.recording.spread import BINS, LONGEST_NS, Spread, quantile

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


def test_bins_stay_few_whatever_comes() -> None:
    spread = Spread()
    for exponent in range(200):
        spread.add([2**exponent + part for part in range(64)], 1)
    spread.add([0], 1)
    assert len(spread._bins) <= BINS * math.log2(LONGEST_NS) + 1
    assert Spread().quantile(0.5) is None

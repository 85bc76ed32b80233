"""What repeats is found through noise and inner loops; what does not repeat is no period."""

from __future__ import annotations

import time
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.traces.steps.anchors import anchors
from whyidle.monitor.traces.steps.repetition import Period, period

KERNELS, CALLS = 20, 6


def names(*parts: Any) -> Any:
    return np.concatenate([np.asarray(part) for part in parts]).astype(np.int32)


def length(sequence: Any, bits: float = KERNELS, *, constant: bool = False) -> int | None:
    found = period(names(sequence), bits, constant=constant)
    return found.length if found else None


patterns = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).integers(0, 40, 150).astype(np.int32)
)


@given(patterns, st.integers(3, 12), st.integers(0, 149), st.integers(0, 149))
@examples(60)
def test_a_pattern_is_found_wherever_the_record_begins_and_ends(
    pattern: Any, times: int, cut: int, rest: int
) -> None:
    sequence = np.tile(pattern, times)[cut : len(pattern) * times - rest]
    expected = len(pattern) if len(sequence) >= 2 * len(pattern) else None
    assert length(sequence) == expected


@given(patterns, st.integers(0, 2**32 - 1))
@examples(60)
def test_other_names_here_and_there_do_not_hide_it(pattern: Any, seed: int) -> None:
    chance = np.random.default_rng(seed)
    sequence = np.tile(pattern, 8)
    noisy = chance.random(len(sequence)) < 0.04
    sequence[noisy] = chance.integers(0, 40, noisy.sum())
    assert length(sequence) == len(pattern)


@given(patterns, st.lists(st.integers(0, 1199), min_size=1, max_size=4, unique=True))
# Nearly all in one period: over two periods they are compared only half as often.
@example(np.random.default_rng(0).integers(0, 40, 150).astype(np.int32), [155, 177, 188, 916])
@examples(60)
def test_an_operation_more_now_and_then_does_not_hide_it(pattern: Any, where: list[int]) -> None:
    # At the same place of two periods, or nearly, it would be the mark of a longer one.
    places = sorted(at % len(pattern) for at in where)
    assume(all(25 < b - a < len(pattern) - 25 for a, b in combinations(places, 2)))
    sequence = np.insert(np.tile(pattern, 8), where, 77).astype(np.int32)
    found = period(sequence, KERNELS)
    assert found
    assert abs(found.length - len(pattern)) <= 1
    begins = anchors(sequence, found, np.zeros(len(sequence), np.int64))
    assert abs(len(begins) - 8) <= 1


@given(st.integers(2, 300), st.integers(2, 6), st.integers(1, 4))
@examples(60)
def test_an_inner_loop_is_not_the_period(inner: int, outer: int, motif: int) -> None:
    step = names([90, 91], np.tile(np.arange(motif), inner), [92, 93, 94])
    expected = len(step) if (outer * len(step)) >= 4 else None
    assert length(np.tile(step, outer), CALLS) == expected


def test_an_inner_loop_of_a_short_record_is_not_the_period() -> None:
    """Two steps and a bit: too little to show that what fails comes again."""
    chance = np.random.default_rng(2275938409)
    layer = chance.integers(0, 40, chance.integers(40, 120))
    times = int(chance.integers(2, 7))
    step = names(np.tile(layer, times), chance.integers(40, 60, chance.integers(5, 80)))
    record = np.tile(step, 4)[: int(chance.uniform(2, 3.2) * len(step))]
    where = chance.choice(len(record), int(chance.integers(1, 4)), replace=False)
    assert length(np.insert(record, where, 77)) == len(step)


def test_a_loop_in_a_loop_in_a_loop() -> None:
    layer = names([10], np.tile([1, 2], 30), [11])
    step = names([20, 21], np.tile(layer, 12), [22])
    assert length(np.tile(step, 3)) == len(step)


def test_less_than_two_outer_periods_are_none() -> None:
    layers = names(np.arange(60, 100), np.tile(np.arange(49), 24), [51, 52])
    assert length(np.tile(layers, 3)[600:2600]) is None


@given(st.integers(2, 30), st.integers(0, 2**32 - 1), st.sampled_from([60, 500, 5000]))
@examples(100)
def test_a_random_sequence_has_no_period(alphabet: int, seed: int, size: int) -> None:
    chance = np.random.default_rng(seed)
    assert length(chance.integers(0, alphabet, size)) is None
    weights = chance.dirichlet(np.full(alphabet, 0.3))
    assert length(chance.choice(alphabet, size, p=weights)) is None


@given(st.integers(0, 2**32 - 1))
@examples(50)
def test_runs_of_one_name_are_no_period(seed: int) -> None:
    chance = np.random.default_rng(seed)
    assert length(np.repeat(chance.integers(0, 9, 40), chance.integers(1, 200, 40))) is None


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5])
def test_a_short_sequence_has_no_period(size: int) -> None:
    assert length(np.arange(size)) is None
    assert length(np.zeros(size)) is None


def test_one_name_over_and_over_is_a_period_only_where_allowed() -> None:
    assert length(np.zeros(500)) is None
    assert length(np.zeros(500), constant=True) == 1
    # What is called once at the beginning does not hide it.
    found = period(names([3, 4, 5], np.zeros(100)), CALLS, constant=True)
    assert found
    assert found.length == 1
    assert anchors(names([3, 4, 5], np.zeros(100)), found, np.zeros(103, np.int64)).size == 100


def test_few_calls_of_few_names() -> None:
    assert length(np.tile([0, 1], 5), CALLS, constant=True) == 2
    assert length(names(np.tile(names(np.zeros(32), [1]), 5)), CALLS, constant=True) == 33


def test_periods_begin_after_the_longest_pause() -> None:
    sequence = np.tile(np.arange(30), 6)[13:-4].astype(np.int32)
    pause = np.where(sequence == 7, 50, 1)
    pause[3] = 10_000  # once only
    begins = anchors(sequence, Period(30, 1.0), pause)
    assert sequence[begins].tolist() == [7] * len(begins)
    assert np.diff(begins).tolist() == [30] * (len(begins) - 1)


def test_a_record_of_whole_periods_begins_with_one() -> None:
    sequence = np.tile(np.arange(200), 4).astype(np.int32)
    pause = np.where(sequence == 7, 50, 1)
    assert anchors(sequence, Period(200, 1.0), pause).tolist() == [0, 200, 400, 600]


def test_the_search_is_linear() -> None:
    """Ten times as many entries may take no more than some ten times as long."""
    chance = np.random.default_rng(1)
    worst = [
        chance.integers(0, 60, 200_000),
        np.arange(200_000),
        np.zeros(200_000),
        np.repeat(chance.integers(0, 9, 2000), 100),
        np.tile(chance.integers(0, 60, 1500), 134),
    ]
    for sequence in worst:
        began = time.process_time()
        period(sequence.astype(np.int32), KERNELS)
        # Measured: 10 to 30 ms; a quadratic search takes minutes.
        assert time.process_time() - began < 0.5

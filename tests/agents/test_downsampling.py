"""Which calls a hook samples."""

from __future__ import annotations

import pytest

from whyidle.agents.downsampling import BURST, LEAST_CALLS, ROUND, SECOND, Downsampler

MANY = 500


def calls(downsampler: Downsampler, number: int) -> int:
    """Make calls, and return how many of them a hook would have sampled."""
    return sum(looked_at(downsampler) for _ in range(number))


def looked_at(downsampler: Downsampler) -> bool:
    return not downsampler.active or downsampler.number() % ROUND < BURST


@pytest.fixture
def on() -> Downsampler:
    """Return one that samples some calls, after a second of many calls."""
    downsampler = Downsampler(0, MANY)
    assert downsampler.second(SECOND, calls(downsampler, 10 * MANY)) == 1
    assert downsampler.is_on
    return downsampler


def test_all_calls_are_sampled_until_they_are_many() -> None:
    downsampler = Downsampler(0, MANY)
    assert calls(downsampler, MANY) == MANY
    assert downsampler.second(SECOND, MANY) == 1
    assert downsampler.came == MANY
    assert not downsampler.is_on
    assert downsampler.facts("reads") == {}
    assert calls(downsampler, MANY + 1) == MANY + 1
    assert downsampler.second(2 * SECOND, MANY + 1) == 1
    assert downsampler.is_on


def test_sampled_calls_stand_for_all(on: Downsampler) -> None:
    number = 100 * ROUND
    seen = calls(on, number)
    assert abs(seen - 100 * BURST) <= BURST
    assert on.second(2 * SECOND, seen) * seen == pytest.approx(number, rel=0.01)
    assert on.came == number


def test_they_come_in_a_row_and_so_are_met_whatever_comes_by_turns(on: Downsampler) -> None:
    kinds = [0] * 8
    for call in range(200 * ROUND):
        kinds[call % 8] += looked_at(on)
    assert max(kinds) <= 1.1 * min(kinds)


def test_it_ends_when_few_come_and_not_before(on: Downsampler) -> None:
    on.second(2 * SECOND, calls(on, MANY // 2 + 1))
    assert on.is_on
    on.second(3 * SECOND, calls(on, MANY // 2 - 1))
    assert not on.is_on
    assert calls(on, ROUND) == ROUND
    # A later reader of the figures still learns of it.
    assert on.facts("reads") == {"timed_reads": round(BURST / ROUND, 3)}


def test_it_ends_where_some_may_not_stand_for_all(on: Downsampler) -> None:
    assert on.second(2 * SECOND, calls(on, 10 * MANY), may=False) > 1
    assert on.second(3 * SECOND, calls(on, 10 * MANY), may=False) == 1


def test_a_look_that_comes_at_once_chooses_nothing() -> None:
    downsampler = Downsampler(0, MANY)
    downsampler.second(1, calls(downsampler, LEAST_CALLS - 1))
    assert not downsampler.is_on

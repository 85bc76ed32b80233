"""Which calls a hook looks at."""

from __future__ import annotations

import pytest

from whyidle.agents.thinning import LEAST_CALLS, ROUND, SECOND, SOME, Thinning

MANY = 500


def calls(thinning: Thinning, number: int) -> int:
    """Make calls, and return how many of them a hook would have looked at."""
    return sum(looks(thinning) for _ in range(number))


def looks(thinning: Thinning) -> bool:
    return not thinning.thinned or thinning.number() % ROUND < SOME


@pytest.fixture
def on() -> Thinning:
    """Return one that looks at some, after a second of many calls."""
    thinning = Thinning(0, MANY)
    assert thinning.second(SECOND, calls(thinning, 10 * MANY)) == 1
    assert thinning.is_on
    return thinning


def test_all_are_looked_at_until_they_are_many() -> None:
    thinning = Thinning(0, MANY)
    assert calls(thinning, MANY) == MANY
    assert thinning.second(SECOND, MANY) == 1
    assert thinning.came == MANY
    assert not thinning.is_on
    assert thinning.facts("reads") == {}
    assert calls(thinning, MANY + 1) == MANY + 1
    assert thinning.second(2 * SECOND, MANY + 1) == 1
    assert thinning.is_on


def test_those_that_are_looked_at_stand_for_all(on: Thinning) -> None:
    number = 100 * ROUND
    seen = calls(on, number)
    assert abs(seen - 100 * SOME) <= SOME
    assert on.second(2 * SECOND, seen) * seen == pytest.approx(number, rel=0.01)
    assert on.came == number


def test_they_come_in_a_row_and_so_are_met_whatever_comes_by_turns(on: Thinning) -> None:
    kinds = [0] * 8
    for call in range(200 * ROUND):
        kinds[call % 8] += looks(on)
    assert max(kinds) <= 1.1 * min(kinds)


def test_it_ends_when_few_come_and_not_before(on: Thinning) -> None:
    on.second(2 * SECOND, calls(on, MANY // 2 + 1))
    assert on.is_on
    on.second(3 * SECOND, calls(on, MANY // 2 - 1))
    assert not on.is_on
    assert calls(on, ROUND) == ROUND
    # Who reads the figures later is still told.
    assert on.facts("reads") == {"timed_reads": round(SOME / ROUND, 3)}


def test_it_ends_where_some_may_not_stand_for_all(on: Thinning) -> None:
    assert on.second(2 * SECOND, calls(on, 10 * MANY), may=False) > 1
    assert on.second(3 * SECOND, calls(on, 10 * MANY), may=False) == 1


def test_a_look_that_comes_at_once_chooses_nothing() -> None:
    thinning = Thinning(0, MANY)
    thinning.second(1, calls(thinning, LEAST_CALLS - 1))
    assert not thinning.is_on

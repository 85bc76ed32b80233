"""Which calls a hook looks at."""

from __future__ import annotations

from whyidle.agents.thinning import MANY, PATIENCE, ROUND, SECOND, SOME, Thinning


def calls(thinning: Thinning, number: int) -> int:
    """Make calls, and return how many of them a hook would have looked at."""
    return sum(thinning.number() % ROUND < thinning.until[0] for _ in range(number))


def test_all_are_looked_at_until_they_are_many() -> None:
    thinning = Thinning(0)
    assert calls(thinning, MANY) == MANY
    assert thinning.second(SECOND, MANY) == 1
    assert not thinning.is_on
    assert calls(thinning, MANY + 1) == MANY + 1
    assert thinning.second(2 * SECOND, MANY + 1) == 1
    assert thinning.is_on


def test_those_that_are_looked_at_stand_for_all() -> None:
    thinning = Thinning(0)
    thinning.second(SECOND, calls(thinning, 10 * MANY))
    number = 100 * ROUND
    seen = calls(thinning, number)
    assert abs(seen - 100 * SOME) <= SOME
    assert round(thinning.second(2 * SECOND, seen) * seen) == number
    assert thinning.came == number


def test_they_come_in_a_row_and_so_are_met_whatever_comes_by_turns() -> None:
    thinning = Thinning(0)
    thinning.second(SECOND, calls(thinning, 10 * MANY))
    kinds = [0] * 8
    for call in range(200 * ROUND):
        kinds[call % 8] += thinning.number() % ROUND < thinning.until[0]
    assert max(kinds) <= 1.1 * min(kinds)


def test_it_ends_when_few_come_and_not_before() -> None:
    thinning = Thinning(0)
    thinning.second(SECOND, calls(thinning, 10 * MANY))
    thinning.second(2 * SECOND, calls(thinning, MANY // 2 + 1))
    assert thinning.is_on
    thinning.second(3 * SECOND, calls(thinning, MANY // 2 - 1))
    assert not thinning.is_on
    assert calls(thinning, ROUND) == ROUND


def test_calls_wait_for_one_that_is_looked_at_but_not_for_ever() -> None:
    thinning = Thinning(0)
    thinning.second(SECOND, calls(thinning, 10 * MANY))
    calls(thinning, MANY)
    assert thinning.second(2 * SECOND, 0) == 0
    calls(thinning, MANY)
    assert thinning.second(3 * SECOND, 10) * 10 == 2 * MANY
    for second in range(PATIENCE + 1):
        calls(thinning, MANY)
        assert thinning.second((4 + second) * SECOND, 0) == 0
    calls(thinning, MANY)
    assert thinning.second((5 + PATIENCE) * SECOND, 5) * 5 == MANY


def test_those_that_stand_for_themselves_are_not_counted_twice() -> None:
    thinning = Thinning(0)
    thinning.second(SECOND, calls(thinning, 10 * MANY))
    calls(thinning, 1000)
    assert thinning.second(2 * SECOND, 90, alone=100) * 90 == 900

"""What keeps the agent cheap does not change what it reports."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable

import pytest

from whyidle.agents import wire
from whyidle.agents.ring import AT_ONCE, drain
from whyidle.agents.steps import FEW, Steps, _Source
from whyidle.agents.timers import EARLY, LATE, SECOND, Timer, Timers

MS = SECOND // 1000


def test_what_is_taken_is_the_oldest_in_order_and_out() -> None:
    number = 3 * AT_ONCE + 7
    items = deque(range(number + 5))
    assert drain(items, number) == list(range(number))
    assert list(items) == list(range(number, number + 5))
    assert drain(items, 0) == []


def run(timers: Timers, seconds: int, late: Callable[[], int] = int) -> list[int]:
    """Return the moments in which the thread was awake, on the test's own clock."""
    now, awake = 0, []
    while now < seconds * SECOND:
        now += timers.wait_ns(now) + late()
        awake.append(now)
        timers.run(now)
        # It takes a little while to wake up and to work.
        now += 300_000
    return awake


def test_what_may_come_early_wakes_nobody_up_of_its_own() -> None:
    timers = Timers()
    samples: list[int] = []
    seconds: list[int] = []
    timers.add(Timer(SECOND, seconds.append, SECOND // 10), 0)
    timers.add(Timer(SECOND // 5, samples.append), 0)
    awake = run(timers, 60)
    assert len(awake) <= len(samples) + 1
    assert 58 <= len(seconds) <= 62
    gaps = [after - before for before, after in itertools.pairwise(seconds)]
    assert min(gaps) >= 0.9 * SECOND - MS
    assert max(gaps) <= 1.1 * SECOND + MS


@pytest.mark.parametrize("late_ns", [0, 5 * MS, 20 * MS])
def test_a_thread_that_comes_late_wakes_up_no_more_often(late_ns: int) -> None:
    """A job that never waits releases the GIL 5 ms after another thread asks for it."""
    chance = random.Random(1)
    timers = Timers()
    samples: list[int] = []
    pauses: list[int] = []
    seconds: list[int] = []
    timers.add(Timer(SECOND, seconds.append, EARLY, LATE), 0)
    timers.add(Timer(2 * SECOND // 5, pauses.append, EARLY, LATE), 0)
    timers.add(Timer(SECOND // 5, samples.append), 0)
    awake = run(timers, 60, lambda: chance.randrange(late_ns) if late_ns else 0)
    assert len(awake) == len(samples)
    assert 299 <= len(samples) <= 301
    assert 59 <= len(seconds) <= 61
    for found, period in ((seconds, SECOND), (pauses, 2 * SECOND // 5)):
        gaps = [after - before for before, after in itertools.pairwise(found)]
        assert min(gaps) >= period - EARLY - late_ns - MS
        assert max(gaps) <= period + LATE + late_ns + MS


def test_one_that_was_kept_for_long_is_done_once_and_goes_on() -> None:
    timers = Timers()
    found: list[int] = []
    timers.add(Timer(SECOND, found.append), 0)
    for now in (SECOND, 9 * SECOND, 9 * SECOND + MS, 10 * SECOND, 10 * SECOND + MS):
        timers.run(now)
    assert found == [SECOND, 9 * SECOND, 10 * SECOND]


def test_one_that_may_come_late_comes_by_itself_then() -> None:
    timers = Timers()
    found: list[int] = []
    timers.add(Timer(SECOND, found.append, EARLY, LATE), 0)
    assert run(timers, 3)[0] == SECOND + LATE
    assert found[0] == SECOND + LATE


def test_a_duty_that_may_not_be_early_is_not() -> None:
    timers = Timers()
    found: list[int] = []
    timers.add(Timer(SECOND, found.append), 0)
    timers.run(SECOND - 1)
    assert not found
    timers.run(SECOND)
    assert found == [SECOND]


@pytest.mark.parametrize("is_fastest", [True, False])
@pytest.mark.parametrize("keys", [1, 2, FEW, FEW + 3])
def test_many_ticks_at_once_say_what_they_say_one_by_one(keys: int, *, is_fastest: bool) -> None:
    chance = random.Random(keys)
    at_once, one_by_one = (_Source(is_fastest=is_fastest) for _ in range(2))
    now = 5 * SECOND
    for _ in range(30):
        moments, names = [], []
        for _ in range(chance.randrange(40)):
            # Now and then a rest.
            now += chance.choice([MS, 2 * MS, 3 * MS] * 20 + [3 * SECOND])
            moments.append(now)
            names.append(chance.randrange(keys))
        took: dict[int, list[int]] = {}
        for moment, name in zip(moments, names, strict=True):
            one_by_one._note(moment, name, took)
        found = at_once._note_all(moments, names)
        assert {name: its for name, its in found.items() if its} == took
        assert at_once._last == one_by_one._last
        for name, key in one_by_one._keys.items():
            other = at_once._keys[name]
            assert (key.first, key.last, key.ticks) == (other.first, other.last, other.ticks)


def test_the_steps_of_a_second_are_all_counted_when_they_are_short() -> None:
    steps = Steps()
    feed, _ = steps.feed("optimizer")
    for number in range(10_001):
        feed((SECOND + number * 100_000, 1))
    record, figures = steps.second(2 * SECOND + 100)
    assert figures == {wire.STEPS: 10_000}
    assert record is not None
    assert set(record[-1]) == {100_000}

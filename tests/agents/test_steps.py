"""Ticks become steps: which source counts, and which of several optimizers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

import pytest

from whyidle.agents import steps as steps_module
from whyidle.agents.steps import CAPACITY, QUIET_NS, SECOND, Steps
from whyidle.agents.wire import MOST_DURATIONS, STEP_SOURCES, STEPS

MS = SECOND // 1000


class Clock:
    """A job whose ticks come when the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 10 * SECOND
        monkeypatch.setattr(steps_module, "monotonic_ns", lambda: self.now)
        self.steps = Steps()

    def tick(self, tick: Callable[[int], None], gaps: Iterable[int], key: int = 0) -> None:
        for gap in gaps:
            self.now += gap
            tick(key)

    def second(self) -> tuple[list[object] | None, dict[str, int | None]]:
        return self.steps.second(self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_without_ticks_there_is_no_record(clock: Clock) -> None:
    clock.steps.listen("optimizer")
    assert clock.second() == (None, {})


def test_a_step_is_the_time_between_two_ticks(clock: Clock) -> None:
    tick, _ = clock.steps.listen("optimizer")
    clock.tick(tick, [10 * MS, 20 * MS, 30 * MS, 5 * MS])
    record, figures = clock.second()
    assert record == ["steps", clock.now, "optimizer", 65 * MS, 3, [5 * MS, 20 * MS, 30 * MS]]
    assert figures == {STEPS: 3}
    clock.tick(tick, [40 * MS])
    record, figures = clock.second()
    assert record == ["steps", clock.now, "optimizer", 40 * MS, 1, [40 * MS]]
    assert figures == {STEPS: 4}
    clock.now += SECOND
    assert clock.second() == (None, {STEPS: 4})


def test_steps_longer_than_a_minute_are_recorded(clock: Clock) -> None:
    tick, _ = clock.steps.listen("optimizer")
    for expected in (None, [90 * SECOND], [90 * SECOND], [90 * SECOND]):
        clock.tick(tick, [90 * SECOND])
        record, _ = clock.second()
        assert (record and record[-1]) == expected


def turns(clock: Clock, tick: Callable[[int], None], gaps: dict[int, list[int]]) -> None:
    """Go through so much of a loop as a second has; each optimizer steps after its gaps."""
    for _ in range(20):
        for key, its in gaps.items():
            clock.tick(tick, its, key)


# A critic in each turn, an actor in every second; a critic five times for one generator, whether in
# a loop of its own or in each turn; two in each turn.
DELAYED = {1: [3 * MS, 3 * MS], 2: [2 * MS]}
FIVE_TO_ONE = {1: [MS] * 5, 2: [2 * MS]}
TOGETHER = {1: [3 * MS], 2: [2 * MS]}


@pytest.mark.parametrize(("gaps", "each"), [(DELAYED, 2), (FIVE_TO_ONE, 5), (TOGETHER, 1)], ids=str)
def test_a_step_is_what_the_optimizer_makes_that_skips_no_turn(
    gaps: dict[int, list[int]], each: int, clock: Clock
) -> None:
    tick, _ = clock.steps.listen("optimizer")
    for second in range(1, 5):
        turns(clock, tick, gaps)
        record, figures = clock.second()
        assert record is not None
        # One kind of step from the first to the last.
        assert len(record) == 6
        assert figures == {STEPS: each * 20 * second - 1}


@pytest.mark.parametrize(("loaded", "each"), [(20, 1), (100, 5), (400, 5), (5, 1)])
def test_of_several_optimizers_the_one_counts_that_steps_once_a_batch(
    loaded: int, each: int, clock: Clock
) -> None:
    """A critic that steps often for one batch, or for a batch of its own; gradients that add up."""
    tick, _ = clock.steps.listen("optimizer")
    for second in range(20):
        turns(clock, tick, FIVE_TO_ONE)
        clock.now += SECOND - 20 * 7 * MS
        # A validation gives batches, and makes no step.
        clock.steps.batches(clock.now, loaded + (loaded // 5) * (second % 4 == 3))
        record, _ = clock.second()
        assert record is not None
        if second > 2:
            assert record[4] == each * 20


def test_models_that_train_in_turns_are_one_kind_of_step(clock: Clock) -> None:
    """Many steps of a model, some fast ones of another, and a pause to play."""
    tick, _ = clock.steps.listen("optimizer")
    rounds: list[list[object]] = []
    for _ in range(10):
        rounds.append([])
        for key, gaps in ((1, [10 * MS] * 100), (1, [10 * MS] * 500), (2, [5 * MS] * 20)):
            clock.tick(tick, gaps, key)
            rounds[-1].append(clock.second()[0])
        clock.now += 5 * SECOND
        rounds[-1].append(clock.second()[0])
    kinds = [[each[6:] for each in its if isinstance(each, list)] for its in rounds]
    assert kinds[2:] == [[kinds[-1][0]] * 2] * 8


def test_steps_of_another_optimizer_are_of_another_unit(clock: Clock) -> None:
    tick, _ = clock.steps.listen("optimizer")
    clock.tick(tick, [10 * MS] * 100, key=1)
    record, _ = clock.second()
    assert record is not None
    assert len(record) == 6
    clock.tick(tick, [SECOND] * 5, key=2)
    record, _ = clock.second()
    assert record is not None
    assert record[4:] == [4, [SECOND] * 4, 1]


def test_whatever_ticks_and_whenever_steps_are_counted_and_none_is_taken_back(
    clock: Clock,
) -> None:
    chance = random.Random(4)
    tick, _ = clock.steps.listen("optimizer")
    total = unit = 0
    for _ in range(400):
        for _ in range(chance.randrange(30)):
            gap = chance.choice([0, 1, MS, MS, 20 * MS, 2 * SECOND, 70 * SECOND])
            clock.tick(tick, [gap], key=chance.randrange(chance.choice([2, 2, 200])))
        clock.now += chance.choice([0, SECOND, QUIET_NS])
        clock.steps.batches(clock.now, chance.choice([0, 0, 1, 1000]))
        record, figures = clock.second()
        if record is not None:
            its = record[6] if len(record) > 6 else 0
            assert isinstance(its, int)
            assert its >= unit
            unit = its
        assert (figures.get(STEPS) or 0) >= total
        total = figures.get(STEPS) or 0
    assert total > 1000


def test_threads_that_mark_steps_make_one_when_the_slowest_has_made_its(clock: Clock) -> None:
    tick, _ = clock.steps.listen("whyidle.step")
    turns(clock, tick, FIVE_TO_ONE)
    assert clock.second()[1] == {STEPS: 19}


def test_optimizers_that_step_together_do_not_take_turns(clock: Clock) -> None:
    tick, _ = clock.steps.listen("optimizer")
    gaps = itertools.cycle([9 * MS, 10 * MS, 11 * MS])
    total = -1
    for _ in range(40):
        for _ in range(5):
            clock.tick(tick, [MS], key=1)
            clock.tick(tick, [next(gaps)], key=2)
        total += 5
        assert clock.second()[1] == {STEPS: total}


def test_the_optimizer_of_the_next_phase_takes_over(clock: Clock) -> None:
    tick, _ = clock.steps.listen("optimizer")
    clock.tick(tick, [50 * MS] * 10, key=1)
    assert clock.second()[1] == {STEPS: 9}
    # The first optimizer was much slower, but it has stopped.
    clock.tick(tick, [MS] * 2000, key=2)
    clock.second()
    clock.tick(tick, [MS] * 1000, key=2)
    record, _ = clock.second()
    assert record is not None
    assert record[4] == 1000


def test_a_pause_does_not_make_a_thread_a_slow_one(clock: Clock) -> None:
    tick, _ = clock.steps.listen("whyidle.step")
    for _ in range(50):
        clock.tick(tick, [MS], key=1)
        clock.tick(tick, [20 * MS], key=2)
    clock.second()
    clock.now += 300 * SECOND
    for _ in range(50):
        clock.tick(tick, [MS] * 4, key=1)
        clock.tick(tick, [MS], key=2)
    clock.second()
    for _ in range(50):
        clock.tick(tick, [MS] * 4, key=1)
        clock.tick(tick, [MS], key=2)
    record, _ = clock.second()
    assert record is not None
    assert record[4:6] == [50, [5 * MS] * 50]


def test_the_users_markers_count_for_more_than_optimizers(clock: Clock) -> None:
    ticks = [clock.steps.listen(source)[0] for source in reversed(STEP_SOURCES)]
    for better, source in zip(ticks, reversed(STEP_SOURCES), strict=True):
        for tick in ticks:
            if tick is better:
                break
            clock.tick(tick, [MS] * 7)
        clock.tick(better, [MS] * 3)
        record, _ = clock.second()
        assert record is not None
        assert record[2] == source
        assert record[4] == 2


def test_a_marker_that_falls_silent_gives_way(clock: Clock) -> None:
    marker, _ = clock.steps.listen("ProfilerStep")
    optimizer, _ = clock.steps.listen("optimizer")
    for _ in range(10):
        clock.tick(optimizer, [100 * MS])
        clock.tick(marker, [0])
    record, _ = clock.second()
    assert record is not None
    assert (record[2], record[4]) == ("ProfilerStep", 9)
    clock.tick(optimizer, [100 * MS] * 10)
    assert clock.second()[0] is None
    clock.tick(optimizer, [100 * MS] * 30)
    record, figures = clock.second()
    assert record is not None
    assert (record[2], record[4]) == ("optimizer", 30)
    assert figures == {STEPS: 39}


def test_a_marker_of_long_steps_has_a_minute(clock: Clock) -> None:
    marker, _ = clock.steps.listen("whyidle.step")
    optimizer, _ = clock.steps.listen("optimizer")
    clock.tick(marker, [10 * SECOND] * 3)
    record, _ = clock.second()
    assert record is not None
    assert record[2] == "whyidle.step"
    clock.tick(optimizer, [SECOND] * 50)
    assert clock.second()[0] is None
    clock.now += QUIET_NS
    clock.tick(optimizer, [SECOND] * 5)
    record, _ = clock.second()
    assert record is not None
    assert record[2] == "optimizer"


def test_durations_are_picked_evenly(clock: Clock) -> None:
    tick, _ = clock.steps.listen("optimizer")
    clock.tick(tick, [MS, *(n * MS for n in range(1, 1001))])
    record, _ = clock.second()
    assert record is not None
    count, durations = record[4:]
    assert count == 1000
    assert isinstance(durations, list)
    assert len(durations) == MOST_DURATIONS
    assert (durations[0], durations[-1]) == (MS, 1000 * MS)
    gaps = [b - a for a, b in itertools.pairwise(durations)]
    assert max(gaps) - min(gaps) <= MS


def test_more_ticks_than_there_is_room_for_are_counted_as_lost(clock: Clock) -> None:
    tick, _ = clock.steps.listen("optimizer")
    clock.tick(tick, [MS] * (5 * CAPACITY))
    assert clock.second() == (None, {})
    assert clock.steps.lost() == 1
    clock.tick(tick, [MS] * 3)
    assert clock.second()[1] == {STEPS: 2}


def test_many_optimizers_are_bounded(clock: Clock) -> None:
    tick, _ = clock.steps.listen("optimizer")
    for _ in range(3):
        for key in range(1000):
            clock.tick(tick, [1000], key=key)
    record, _ = clock.second()
    assert record is not None
    assert record[4] == 2


def test_after_the_stop_a_tick_does_nothing(clock: Clock) -> None:
    tick, stop = clock.steps.listen("optimizer")
    clock.tick(tick, [MS] * 3)
    clock.second()
    stop()
    clock.tick(tick, [MS] * 3)
    assert clock.second() == (None, {STEPS: 2})


def test_two_listeners_of_a_source_share_it(clock: Clock) -> None:
    _, stop = clock.steps.listen("optimizer")
    tick, _ = clock.steps.listen("optimizer")
    stop()
    clock.tick(tick, [MS] * 3)
    assert clock.second()[1] == {STEPS: 2}


def test_a_source_that_nobody_knows_is_refused(clock: Clock) -> None:
    with pytest.raises(ValueError, match="other"):
        clock.steps.listen("other")

"""Ticks come on time, and what must not wait wakes the recorder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import start_job
from whyidle.monitor.recording import clock as module
from whyidle.monitor.recording.clock import MOST_RINGS, Sampler, Wake, Waker


class Clock:
    """Time that passes only while the code waits or works."""

    def __init__(self) -> None:
        self.now = 100.0
        self.wakes: list[Wake] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> Wake:
        self.now += max(0.0, seconds)
        return self.wakes.pop(0) if self.wakes else Wake.TIME


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock.monotonic)
    return clock


def ticks_of(clock: Clock, work: Callable[[int], float], count: int) -> tuple[Sampler, list[float]]:
    at: list[float] = []

    def tick() -> bool:
        at.append(round(clock.now - 100, 3))
        clock.now += work(len(at))
        return len(at) < count

    found = Sampler(1.0, clock)  # type: ignore[arg-type]
    assert found.run(tick) is Wake.JOB
    return found, at


def test_the_first_tick_comes_at_once_and_the_others_on_the_second(clock: Clock) -> None:
    _, at = ticks_of(clock, lambda _: 0.3, 4)
    assert at == [0, 1, 2, 3]


def test_a_late_tick_is_left_out_and_counted(clock: Clock) -> None:
    found, at = ticks_of(clock, lambda n: 2.5 if n == 2 else 0.0, 4)
    assert at == [0, 1, 4, 5]
    assert found.missed == 2


def test_it_ends_when_the_time_is_up(clock: Clock) -> None:
    seen: list[float] = []

    def tick() -> bool:
        seen.append(clock.now)
        return True

    assert Sampler(2.0, clock).run(tick, seconds=1.2) is Wake.TIME  # type: ignore[arg-type]
    assert len(seen) == 3
    assert clock.now == pytest.approx(101.2)


def test_the_end_of_the_job_is_checked_at_once(clock: Clock) -> None:
    clock.wakes = [Wake.JOB]
    alive = iter([True, False])
    assert Sampler(0.1, clock).run(lambda: next(alive)) is Wake.JOB  # type: ignore[arg-type]


def test_a_stop_ends_it(clock: Clock) -> None:
    clock.wakes = [Wake.TIME, Wake.STOP]
    assert Sampler(1.0, clock).run(lambda: True) is Wake.STOP  # type: ignore[arg-type]


def test_slower_from_now_on(clock: Clock) -> None:
    found = Sampler(1.0, clock)  # type: ignore[arg-type]
    found.slow_down()
    assert found.period == 2.0


def test_a_waker_wakes_for_a_stop_and_for_the_end_of_a_process() -> None:
    with start_job() as job:
        waker = Waker(job.pid)
        assert waker.wait(0.0) is Wake.TIME
        job.kill()
        assert waker.wait(30.0) is Wake.JOB
        waker.stop()
        assert waker.wait(30.0) is Wake.STOP
        waker.close()


def test_a_process_that_is_gone_already_does_not_wake() -> None:
    with start_job() as job:
        job.kill()
    waker = Waker(job.pid)
    assert waker.wait(0.0) is Wake.TIME
    waker.close()


SHORT, LONG = 0.05, 60.0


class Bell:
    """Rings until it has been answered so often."""

    def __init__(self, times: int) -> None:
        self.handle, self._writer = os.pipe2(os.O_NONBLOCK)
        self.times = times
        self.answered = 0
        self.at_last: Callable[[], None] = lambda: None
        os.write(self._writer, b"x")

    def answer(self) -> None:
        self.answered += 1
        if self.answered == self.times:
            os.read(self.handle, 1)
            self.at_last()

    def close(self) -> None:
        os.close(self.handle)
        os.close(self._writer)


@pytest.fixture
def waker() -> Iterator[Waker]:
    found = Waker(os.getpid())
    yield found
    found.close()


def rung(waker: Waker, times: int) -> Iterator[Bell]:
    bell = Bell(times)
    waker.answer(bell.handle, bell.answer)
    yield bell
    bell.close()


@pytest.fixture
def polite(waker: Waker) -> Iterator[Bell]:
    yield from rung(waker, 3)


@pytest.fixture
def endless(waker: Waker) -> Iterator[Bell]:
    yield from rung(waker, 10**9)


def test_who_rings_is_answered_and_the_wait_goes_on(waker: Waker, polite: Bell) -> None:
    # What comes after the last answer is still waited for.
    polite.at_last = waker.stop
    assert waker.wait(LONG) is Wake.STOP
    assert polite.answered == 3


def test_who_has_rung_leaves_the_wait_its_end(waker: Waker, polite: Bell) -> None:
    assert waker.wait(SHORT) is Wake.TIME
    assert polite.answered == 3


def test_who_rings_without_end_is_no_longer_heard_until_the_next_tick(
    waker: Waker, endless: Bell
) -> None:
    assert waker.wait(SHORT) is Wake.TIME
    assert endless.answered == MOST_RINGS
    assert waker.wait(SHORT) is Wake.TIME
    assert endless.answered == 2 * MOST_RINGS


def test_a_stop_is_heard_through_it(waker: Waker, endless: Bell) -> None:
    waker.stop()
    assert waker.wait(LONG) is Wake.STOP


def test_so_is_the_end_of_the_job() -> None:
    with start_job() as job:
        waker = Waker(job.pid)
        job.kill()
        for bell in rung(waker, 3):
            assert waker.wait(LONG) is Wake.JOB
            assert bell.answered <= 3
        waker.close()


def test_without_time_left_nobody_waits_and_who_rings_is_answered(
    waker: Waker, polite: Bell
) -> None:
    assert waker.wait(-1.0) is Wake.TIME
    assert polite.answered == 3

"""Waiting for the next tick, while somebody may ring."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import start_job
from whyidle.monitor.recording.waker import MOST_RINGS, Wake, Waker

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

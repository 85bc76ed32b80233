"""The clock of a recording: names of moments, ticks on time, and what wakes us before the next."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from types import FrameType
from typing import Any

from whyidle.agents.wire import clock_pair

LEAP_NS = 1_000_000_000


class WallClock:
    """Names moments of the monotonic clock.

    A clock that is set back must not fold time: then ours goes on. One that leaps ahead (the
    machine slept, the clock was set) is followed.
    """

    def __init__(self) -> None:
        self.pair = clock_pair()

    def follow(self) -> float:
        """Return by how many seconds the clock has leapt ahead, as of this very moment."""
        # Both clocks at one moment: we may have been stopped since the tick began.
        pair = clock_pair()
        ahead = pair.realtime_ns - self.pair.realtime_ns
        ahead -= pair.monotonic_ns - self.pair.monotonic_ns
        if ahead <= LEAP_NS:
            return 0.0
        self.pair = pair
        return ahead / 1e9

    def ms(self, moment: float) -> int:
        """Name a moment."""
        return self._named_ns(moment) // 1_000_000

    def _named_ns(self, moment: float) -> int:
        return self.pair.realtime_ns + int(moment * 1e9) - self.pair.monotonic_ns


# More wake-ups than this between two ticks wait for the next one.
MOST_RINGS = 64


class Wake(StrEnum):
    """Why a wait ended."""

    TIME = "time"
    JOB = "job"
    STOP = "stop"


class Waker:
    """Polls a pidfd of the target and a pipe that signal handlers write to."""

    def __init__(self, pid: int) -> None:
        self.signal: signal.Signals | None = None
        self._handlers: dict[int, Any] = {}
        self._bells: dict[int, Callable[[], None]] = {}
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._pidfd: int | None
        try:
            self._pidfd = os.pidfd_open(pid)
            self._poll.register(self._pidfd, select.POLLIN)
        except OSError:
            # An old kernel, or the process has just gone: the next tick sees it.
            self._pidfd = None

    def stop_on(self, *signals: signal.Signals) -> None:
        """Turn these signals into a stop; one that was ignored (nohup) stays ignored."""
        for number in signals:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Once is enough: a storm of them would run this inside itself until the stack is full.
        signal.signal(number, signal.SIG_IGN)
        self.signal = signal.Signals(number)
        self.stop()

    def stop_as(self, number: signal.Signals) -> None:
        """Stop as if this signal had come."""
        self.signal = number
        self.stop()

    def stop(self) -> None:
        """End the wait, now and from then on. May be called from a signal handler."""
        # A full pipe wakes us as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"x")

    def answer(self, handle: int, serve: Callable[[], None]) -> None:
        """Call this whenever a descriptor can be read while we wait; the tick stays on time."""
        self._bells[handle] = serve

    def ignore(self, handle: int) -> None:
        """Hear of this descriptor no more."""
        self._bells.pop(handle, None)

    def wait(self, seconds: float) -> Wake:
        """Wait at most this long."""
        end = time.monotonic() + seconds
        ready = self._wait(seconds)
        for _ in range(MOST_RINGS):
            if not ready or not ready <= self._bells.keys():
                break
            for handle in ready:
                self._bells[handle]()
            ready = self._wait(end - time.monotonic())
        else:
            ready = self._wait(end - time.monotonic(), deaf=True)
        if self._reader in ready:
            return Wake.STOP
        if self._pidfd in ready and self._pidfd is not None:
            self._poll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
            return Wake.JOB
        return Wake.TIME

    def _wait(self, seconds: float, *, deaf: bool = False) -> set[int]:
        """Return what can be read, once something can or the time is up."""
        bells = () if deaf else tuple(self._bells)
        for bell in bells:
            self._poll.register(bell, select.POLLIN)
        try:
            return {handle for handle, _ in self._poll.poll(max(0.0, seconds) * 1000)}
        finally:
            for bell in bells:
                self._poll.unregister(bell)

    def close(self) -> None:
        """Give handlers and handles back, in this order: a signal may come in between."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for handle in (self._reader, self._writer, self._pidfd):
            if handle is not None:
                os.close(handle)


class Sampler:
    """Calls ``tick`` on time until it says that the job is over, or somebody wants to stop."""

    def __init__(self, hz: float, waker: Waker) -> None:
        self.period = 1.0 / hz
        self.missed = 0
        self._waker = waker

    def slow_down(self, factor: float = 2.0) -> None:
        """Tick less often from now on."""
        self.period *= factor

    def run(self, tick: Callable[[], bool], seconds: float | None = None) -> Wake:
        """Tick until the job ends (JOB), a stop (STOP) or the time is up (TIME)."""
        started = due = time.monotonic()
        while tick():
            due += self.period
            late = time.monotonic() - due
            if late > 0:
                skipped = int(late / self.period) + 1
                self.missed += skipped
                due += skipped * self.period
            end = float("inf") if seconds is None else started + seconds
            wake = self._waker.wait(min(due, end) - time.monotonic())
            if wake is Wake.STOP or (wake is Wake.TIME and due > end):
                return wake
            if wake is Wake.JOB:
                due = time.monotonic()
        return Wake.JOB

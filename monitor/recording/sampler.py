"""The clock: a tick at once, then one every 1/hz seconds; a late one is left out, never doubled."""

from __future__ import annotations

import time
from collections.abc import Callable

from whyidle.monitor.recording.waker import Wake, Waker


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

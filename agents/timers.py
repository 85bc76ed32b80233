"""What the agent's thread does when nobody asks: each timer at its own pace, late ones only once.

To wake up is what costs, most of all where the job never waits. So a timer may say how much too
early it may be done, and how much too late: it is, when the thread is awake for another.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000_000
# How early and how late what is done each second may be done: half of the time between two stack
# samples, and a little more, for those come late where the job holds Python's lock.
EARLY = LATE = SECOND // 10 + SECOND // 50
# The longest wait, with nothing to do.
LONGEST = 2 * SECOND


class Timer:
    """Something to do again and again."""

    __slots__ = ("_act", "due", "early", "late", "period")

    def __init__(
        self, period: int, act: Callable[[int], None], early: int = 0, late: int = 0
    ) -> None:
        self.period = period
        self.early = early
        self.late = late
        self.due = 0
        self._act = act

    def run(self, now: int) -> None:
        """Do it now; the next time is a period later, and not sooner than half of one from here.

        Who is a little late each time would do it less often than is due.
        """
        self.due = max(self.due + self.period, now + self.period // 2)
        self._act(now)


class Timers:
    """All of them; used by one thread at a time."""

    __slots__ = ("_timers",)

    def __init__(self) -> None:
        self._timers: list[Timer] = []

    def add(self, timer: Timer, now: int) -> None:
        """Begin a timer, one period from now."""
        timer.due = now + timer.period
        self._timers.append(timer)

    def remove(self, timer: Timer) -> None:
        """End a timer."""
        self._timers.remove(timer)

    def run(self, now: int) -> None:
        """Do what is due, and what may be done with it."""
        for timer in list(self._timers):
            if timer.due - timer.early <= now:
                timer.run(now)

    def wait_ns(self, now: int) -> int:
        """Return the time until one cannot wait any longer."""
        first = now + LONGEST
        for timer in self._timers:
            first = min(first, timer.due + timer.late)
        return max(0, first - now)

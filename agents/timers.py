"""What the agent's thread does by the clock: each timer at its own period, late ones only once.

Waking up is what costs, most of all where the job never waits. So a timer may say by how much it
may run early or late: then it runs when the thread is awake for another one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000_000
# How early and how late a timer of each second may run: half of the time between two stack samples,
# and a little more, as those come late where the job holds Python's lock.
EARLY = LATE = SECOND // 10 + SECOND // 50
# The longest wait, where no timer is due.
LONGEST = 2 * SECOND


class Timer:
    """Something to do periodically."""

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
        """Run it now; the next time is a period after it was due, at least half a period from now.

        Counted from now, one that is a little late each time would run too seldom.
        """
        self.due = max(self.due + self.period, now + self.period // 2)
        self._act(now)


class Timers:
    """The timers of one agent; used by one thread at a time."""

    __slots__ = ("_timers",)

    def __init__(self) -> None:
        self._timers: list[Timer] = []

    def add(self, timer: Timer, now: int) -> None:
        """Start a timer, first due one period from now."""
        timer.due = now + timer.period
        self._timers.append(timer)

    def remove(self, timer: Timer) -> None:
        """Stop a timer."""
        self._timers.remove(timer)

    def run(self, now: int) -> None:
        """Run what is due, or may run early."""
        for timer in list(self._timers):
            if timer.due - timer.early <= now:
                timer.run(now)

    def wait_ns(self, now: int) -> int:
        """Return the time until a timer cannot wait any longer."""
        first = now + LONGEST
        for timer in self._timers:
            first = min(first, timer.due + timer.late)
        return max(0, first - now)

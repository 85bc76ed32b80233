"""What the agent's thread does when nobody asks: each duty at its own pace, late ones only once."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000_000
# The longest wait, with nothing to do.
LONGEST = 2 * SECOND


class Duty:
    """Something to do again and again."""

    __slots__ = ("_act", "due", "period")

    def __init__(self, period: int, act: Callable[[int], None]) -> None:
        self.period = period
        self.due = 0
        self._act = act

    def run(self, now: int) -> None:
        """Do it now; the next time is a period from here."""
        self.due = now + self.period
        self._act(now)


class Duties:
    """All of them; used by one thread at a time."""

    __slots__ = ("_duties",)

    def __init__(self) -> None:
        self._duties: list[Duty] = []

    def add(self, duty: Duty, now: int) -> None:
        """Begin a duty, one period from now."""
        duty.due = now + duty.period
        self._duties.append(duty)

    def remove(self, duty: Duty) -> None:
        """End a duty."""
        self._duties.remove(duty)

    def run(self, now: int) -> None:
        """Do what is due."""
        for duty in list(self._duties):
            if duty.due <= now:
                duty.run(now)

    def wait_ns(self, now: int) -> int:
        """Return the time until the next one."""
        due = min((duty.due for duty in self._duties), default=now + LONGEST)
        return max(0, min(due - now, LONGEST))

"""Which calls a hook looks at: all of them, or, where there are very many, some in each round.

Those are some in a row, so that what comes by turns (two reads in each step, each tenth batch) is
met as often as it comes. What they took then stands for all of the round.
"""

from __future__ import annotations

from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Calls in a round, and how many of them are looked at in a row. A prime: few things come by it.
ROUND = 251
SOME = 31
# So many in a second begin it; half as many end it.
MANY = 500
# Calls of which none was looked at for so many seconds are given up.
PATIENCE = 4
SECOND = 1_000_000_000


class Thinning:
    """What hooks share with the agent's thread: they look where ``number() % ROUND < until[0]``."""

    __slots__ = ("_before", "_came", "_last", "_looks", "_numbers", "_open", "_waits", "until")

    def __init__(self, now: int) -> None:
        self._numbers = count()
        self.until = [ROUND]
        self._last = now
        # The counter counts our own looks, too.
        self._looks = self._before = self._came = self._open = self._waits = 0

    @property
    def number(self) -> Callable[[], int]:
        """Return what a hook calls for its number: one step of C."""
        return self._numbers.__next__

    @property
    def came(self) -> int:
        """Return how many came between the last two looks."""
        return self._came

    @property
    def is_on(self) -> bool:
        """Tell whether only some are looked at."""
        return self.until[0] < ROUND

    def facts(self, what: str) -> dict[str, float]:
        """Say which share of the calls is looked at, where it is not all of them."""
        return {f"timed_{what}": round(SOME / ROUND, 3)} if self.is_on else {}

    def second(self, now: int, seen: int, alone: int = 0) -> float:
        """Return how many calls each that was seen stands for; choose for the time to come.

        Some that were seen besides may stand for themselves alone.
        """
        self._came = next(self._numbers) - self._looks - self._before
        self._before += self._came
        self._looks += 1
        weight = self._weight(seen, alone) if self.is_on else 1
        span, self._last = max(now - self._last, 1), now
        pace = self._came * SECOND / span
        if pace > MANY:
            self.until[0] = SOME
        elif pace < MANY / 2:
            self.until[0] = ROUND
            self._open = self._waits = 0
        return weight

    def _weight(self, seen: int, alone: int) -> float:
        self._open += max(0, self._came - alone)
        self._waits += 1
        if not seen:
            if self._waits > PATIENCE:
                self._open = self._waits = 0
            return 0
        weight = self._open / seen
        self._open = self._waits = 0
        return weight

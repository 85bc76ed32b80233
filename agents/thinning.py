"""Which calls a hook looks at: all of them, or, where there are very many, some in each round.

Those are some in a row, so that what comes by turns (two reads in each step, each tenth batch) is
met as often as it comes. Each then stands for as many as a round has for one of them. What is rare
and long is not met so: whoever uses this has to see the long ones all, or not to thin.
"""

from __future__ import annotations

from itertools import count

from .duties import SECOND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Calls in a round, and how many of them are looked at in a row. A prime: few things come by it.
ROUND = 251
SOME = 31
# Shorter looks with fewer calls say nothing of the pace.
LEAST_NS = 500_000_000
LEAST_CALLS = 100


class Thinning:
    """What hooks share with the agent's thread: once ``thinned`` has something in it, they number.

    They look at those whose ``number() % ROUND < SOME``. Until then they note all, and nothing of
    theirs is touched that they do not need: most of what they cost is memory that lies far away.
    """

    __slots__ = (
        "_before",
        "_came",
        "_last",
        "_looks",
        "_many",
        "_numbers",
        "_was_on",
        "place",
        "thinned",
    )

    def __init__(self, now: int, many: int) -> None:
        self._numbers = count()
        # Hooks only ask whether there is anything in it: it may change while they work.
        self.thinned: list[bool] = []
        # For hooks that come in pairs: where in its round the next call is, and whether any has
        # passed since the last one that was looked at.
        self.place = [0, 0]
        # So many in a second begin it; half as many end it.
        self._many = many
        self._last = now
        # The counter counts our own looks, too.
        self._looks = self._before = self._came = 0
        self._was_on = False

    @property
    def number(self) -> Callable[[], int]:
        """Return what a hook calls for its number, once it numbers: one step of C."""
        return self._numbers.__next__

    @property
    def came(self) -> int:
        """Return how many came between the last two looks."""
        return self._came

    @property
    def is_on(self) -> bool:
        """Tell whether only some are looked at."""
        return bool(self.thinned)

    def second(self, now: int, noted: int, *, may: bool = True) -> float:
        """Return how many calls each stands for that was noted; choose for the time to come."""
        numbered = next(self._numbers) - self._looks - self._before
        self._before += numbered
        self._looks += 1
        self._came = numbered if self.is_on else noted
        weight = ROUND / SOME if self.is_on else 1
        span = now - self._last
        if span >= LEAST_NS or self._came >= LEAST_CALLS:
            self._last = now
            pace = self._came * SECOND / max(span, 1)
            if not may or pace < self._many / 2:
                self.thinned.clear()
            elif pace > self._many and not self.is_on:
                self.thinned.append(True)
        self._was_on |= self.is_on
        return weight

    def facts(self, what: str) -> dict[str, float]:
        """Say which share of the calls is looked at, where it was not all of them once."""
        return {f"timed_{what}": round(SOME / ROUND, 3)} if self._was_on else {}

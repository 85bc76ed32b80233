"""Which calls a hook notes: all of them, or, where there are very many, a burst in each round.

A burst is some calls in a row, so that what alternates (two reads in each step, each tenth batch)
is met as often as it comes. Each call then stands for as many as a round has for each of a burst.
Rare long calls are missed: a caller must note all long ones, or not downsample.
"""

from __future__ import annotations

from itertools import count

from .timers import SECOND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Calls in a round, and how many of them in a row are noted. A prime: few things come by it.
ROUND = 251
BURST = 31
# A shorter time with fewer calls says nothing of the pace.
LEAST_NS = 500_000_000
LEAST_CALLS = 100


class Downsampler:
    """What hooks share with the agent's thread: once ``active`` has something in it, they count.

    They note those whose ``number() % ROUND < BURST``. Until then they note all, and touch nothing
    here that they do not need: most of what they cost is memory that lies far away.
    """

    __slots__ = (
        "_before",
        "_came",
        "_last",
        "_many",
        "_numbers",
        "_reads",
        "_was_on",
        "active",
        "position",
    )

    def __init__(self, now: int, many: int) -> None:
        self._numbers = count()
        # Hooks only check whether there is anything in it: it may change while they run.
        self.active: list[bool] = []
        # For hooks that come in pairs: where in its round the next call is, and whether any has
        # passed since the last one that was noted.
        self.position = [0, 0]
        # So many in a second turn it on; half as many turn it off.
        self._many = many
        self._last = now
        # The counter also counts our own readings of it.
        self._reads = self._before = self._came = 0
        self._was_on = False

    @property
    def number(self) -> Callable[[], int]:
        """Return what a hook calls for its number, once it counts: one step of C."""
        return self._numbers.__next__

    @property
    def came(self) -> int:
        """Return how many calls came between the last two calls of ``second``."""
        return self._came

    @property
    def is_on(self) -> bool:
        """Tell whether only some calls are noted."""
        return bool(self.active)

    def second(self, now: int, noted: int, *, may: bool = True) -> float:
        """Return how many calls each noted one stands for; choose for the time to come."""
        numbered = next(self._numbers) - self._reads - self._before
        self._before += numbered
        self._reads += 1
        self._came = numbered if self.is_on else noted
        weight = ROUND / BURST if self.is_on else 1
        span = now - self._last
        if span >= LEAST_NS or self._came >= LEAST_CALLS:
            self._last = now
            pace = self._came * SECOND / max(span, 1)
            if not may or pace < self._many / 2:
                self.active.clear()
            elif pace > self._many and not self.is_on:
                self.active.append(True)
        self._was_on |= self.is_on
        return weight

    def facts(self, what: str) -> dict[str, float]:
        """Return which share of the calls is noted, if it was ever less than all."""
        return {f"timed_{what}": round(BURST / ROUND, 3)} if self._was_on else {}

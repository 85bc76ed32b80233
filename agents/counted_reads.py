"""Values that a job reads from its devices: how often, how long, how much, and from which lines."""

from __future__ import annotations

from collections import deque

from .code_owner import CodeOwner
from .framework import Part
from .lines import users
from .ring import drain
from .wire import MOST_PLACES, READ_BYTES, SYNC_NS, SYNCS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .lines import Line

# Two numbers for each read between two seconds.
CAPACITY = 32_768
# The first read that ends after so long is sampled: long ones more often.
SAMPLE_NS = 100_000_000
SAMPLES = 64
RECORD_SECONDS = 5


class CountedReads(Part):
    """Totals, and samples as records; who reads is hooked by the part of a framework."""

    name = "reads of values"

    def prepare(self) -> list[bool]:
        """Make room for what is read; returns what is empty once it counts no more."""
        self._totals = [0, 0, 0]
        self._lost = self._seconds = 0
        self._owner = CodeOwner()
        # Times and bytes alternate: the job's garbage collector ignores plain numbers.
        self.figures: deque[int] = deque(maxlen=CAPACITY)
        self.samples: deque[tuple[int, list[Line]]] = deque(maxlen=SAMPLES)
        on = [True]
        self.hooks.add(on.clear)
        return on

    def second(self, now: int) -> dict[str, int | None]:
        """Add up what has happened."""
        number = len(self.figures) // 2
        self._lost += number == CAPACITY // 2
        took = drain(self.figures, 2 * number)
        for place, more in enumerate((number, sum(took[::2]), sum(took[1::2]))):
            self._totals[place] += more
        self._seconds += 1
        if self._seconds % RECORD_SECONDS == 0 and self.samples:
            self.context.put(["reads", now, "array", self._places()])
        return dict(zip((SYNCS, SYNC_NS, READ_BYTES), self._totals))

    def lost(self) -> int:
        """Return how often there were more reads than room."""
        return self._lost

    def _places(self) -> list[list[Any]]:
        found: dict[tuple[Any, ...] | None, list[int]] = {}
        for _ in range(len(self.samples)):
            took, where = self.samples.popleft()
            frame = users(where, self._owner)
            key = None if frame is None else tuple(frame)
            if key in found or len(found) < MOST_PLACES:
                counts = found.setdefault(key, [0, 0])
                counts[0] += 1
                counts[1] += took
        return [[*counts, key and list(key)] for key, counts in found.items()]

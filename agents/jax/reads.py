"""Values that the job reads back from its devices: how often, how long, and where in its code.

``float(loss)``, ``numpy.asarray(x)``, ``jax.device_get`` and whatever else needs the value of an
array go through one property, which caches what it has fetched: only fetches count.
"""

from __future__ import annotations

import sys
from collections import deque
from time import monotonic_ns

from ..code_owner import CodeOwner
from ..framework import Part
from ..lines import lines, users
from ..modules import Missing, need
from ..ring import drain
from ..wire import MOST_PLACES, READ_BYTES, SYNC_NS, SYNCS
from .internals import folder, own, replace_in_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..lines import Line

MODULE = "jax._src.array"
KIND = "ArrayImpl"
# Two numbers for each read between two seconds.
CAPACITY = 32_768
# The first read that ends after so long is sampled: long ones more often.
SAMPLE_NS = 100_000_000
SAMPLES = 64
RECORD_SECONDS = 5


class Reads(Part):
    """Totals, and samples as records."""

    name = "reads of values"

    def begin(self) -> None:
        """Replace the property."""
        kind = need(MODULE, KIND)
        need(MODULE, KIND, "_npy_value")
        was = own(kind, "_value")
        if not isinstance(was, property) or was.fget is None:
            raise Missing(f"no property {MODULE}.{KIND}._value")
        self._totals = [0, 0, 0]
        self._lost = 0
        self._seconds = 0
        self._owner = CodeOwner()
        # Times and bytes alternate: the job's garbage collector ignores plain numbers.
        self._figures: deque[int] = deque(maxlen=CAPACITY)
        self._samples: deque[tuple[int, list[Line]]] = deque(maxlen=SAMPLES)
        on = [True]
        self.hooks.add(on.clear)
        ours = _reading(was.fget, on, self._figures.extend, self._samples.append, folder())
        replace_in_class(self.hooks, kind, "_value", property(ours, doc=was.__doc__))

    def second(self, now: int) -> dict[str, int | None]:
        """Add up what has happened."""
        number = len(self._figures) // 2
        self._lost += number == CAPACITY // 2
        took = drain(self._figures, 2 * number)
        for place, more in enumerate((number, sum(took[::2]), sum(took[1::2]))):
            self._totals[place] += more
        self._seconds += 1
        if self._seconds % RECORD_SECONDS == 0 and self._samples:
            self.context.put(["reads", now, "array", self._places()])
        return dict(zip((SYNCS, SYNC_NS, READ_BYTES), self._totals))

    def lost(self) -> int:
        """Return how often there were more reads than room."""
        return self._lost

    def _places(self) -> list[list[Any]]:
        found: dict[tuple[Any, ...] | None, list[int]] = {}
        for _ in range(len(self._samples)):
            took, where = self._samples.popleft()
            frame = users(where, self._owner)
            key = None if frame is None else tuple(frame)
            if key in found or len(found) < MOST_PLACES:
                counts = found.setdefault(key, [0, 0])
                counts[0] += 1
                counts[1] += took
        return [[*counts, key and list(key)] for key, counts in found.items()]


def _reading(
    original: Callable[[Any], Any],
    on: list[bool],
    note: Callable[[tuple[int, int]], None],
    sample: Callable[[tuple[int, list[Line]]], None],
    jax: str,
) -> Callable[[Any], Any]:
    """Return the getter; nothing of ours in it can fail, and what the original raises goes on."""
    clock, caller, due = monotonic_ns, sys._getframe, [0]

    def read(array: Any) -> Any:
        if not on or array._npy_value is not None:
            return original(array)
        began = clock()
        value = original(array)
        ended = clock()
        note((ended - began, getattr(value, "nbytes", 0)))
        if ended > due[0]:
            due[0] = ended + SAMPLE_NS
            sample((ended - began, lines(caller(1), jax)))
        return value

    return read

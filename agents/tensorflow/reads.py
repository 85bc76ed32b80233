"""Values that the job's main thread reads: how often, how long, and where in its code.

``.numpy()``, ``float(loss)``, ``np.asarray(x)`` and ``if loss > 0:`` all go through one method.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections import deque
from time import monotonic_ns

from ..code_owner import CodeOwner
from ..framework import Part
from ..jax.internals import own, replace_in_class
from ..lines import lines, users
from ..modules import need
from ..ring import drain
from ..wire import MOST_PLACES, READ_BYTES, SYNC_NS, SYNCS
from .internals import dress, folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..lines import Line

MODULE = "tensorflow.python.framework.ops"
KIND = "_EagerTensorBase"
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
        """Wrap the method that fetches a value."""
        kind = need(MODULE, KIND)
        was = own(kind, "_numpy")
        self._totals = [0, 0, 0]
        self._lost = self._seconds = 0
        self._owner = CodeOwner()
        # Times and bytes alternate: the job's garbage collector ignores plain numbers.
        self._figures: deque[int] = deque(maxlen=CAPACITY)
        self._samples: deque[tuple[int, list[Line]]] = deque(maxlen=SAMPLES)
        on = [True]
        self.hooks.add(on.clear)
        ours = _reading(*(was, on, self.context.main, self._figures.extend, self._samples.append))
        replace_in_class(self.hooks, kind, "_numpy", ours)

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
    main: int | None,
    note: Callable[[tuple[int, int]], None],
    sample: Callable[[tuple[int, list[Line]]], None],
) -> Any:
    clock, caller, ident, due = monotonic_ns, sys._getframe, get_ident, [0]
    skipped = folders()

    def read(tensor: Any) -> Any:
        if not on or (main is not None and ident() != main):
            return original(tensor)
        began = clock()
        value = original(tensor)
        ended = clock()
        note((ended - began, getattr(value, "nbytes", 0)))
        if ended > due[0]:
            due[0] = ended + SAMPLE_NS
            sample((ended - began, lines(caller(1), skipped)))
        return value

    return dress(read, original)

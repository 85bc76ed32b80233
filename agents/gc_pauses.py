"""How long the garbage collector stops the job, by callbacks without a line of Python.

Why not a function: Python checks for signals when one begins. A Ctrl-C or a SIGTERM that came
during a collection would be handled inside it, and the exception of the job's handler would be
printed and lost. These callbacks are C from end to end: ``setattr(taps, phase, info)`` calls the
setter of a property, which is ``next``; it advances a ``map``, which appends the time to a deque.
Profilers do not see them either, and they take a quarter of a microsecond each.
"""

from __future__ import annotations

import gc
from collections import deque
from functools import partial
from operator import is_, sub
from time import monotonic_ns

from .wire import LONG_GC_NS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from .hooks import Hooks

    T = TypeVar("T")

# Collections between two calls of ``take``; more are lost from the totals, and counted.
CAPACITY = 4096
# Takes the same two arguments and does nothing.
_pass = property(None, is_)  # type: ignore[arg-type]


class _Starts(map):  # type: ignore[type-arg]
    start = property(None, next)
    stop = _pass


class _Stops(map):  # type: ignore[type-arg]
    start = _pass
    stop = property(None, next)


class _Infos(deque):  # type: ignore[type-arg]
    start = _pass
    stop = property(None, deque.append)


class GcPauses:
    """Totals of all collections, and records of the long ones."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.collections = 0
        self.lost = 0
        self._is_new = True
        self._starts: deque[int] = deque(maxlen=CAPACITY)
        self._stops: deque[int] = deque(maxlen=CAPACITY)
        self._infos: deque[dict[str, int]] = _Infos(maxlen=CAPACITY)

    def install(self, hooks: Hooks) -> None:
        """Begin to listen."""
        clock = iter(monotonic_ns, None)
        for taps in (
            _Starts(self._starts.append, clock),
            _Stops(self._stops.append, clock),
            self._infos,
        ):
            hooks.append(gc.callbacks, partial(setattr, taps))

    def take(self) -> list[list[Any]]:
        """Add up what has happened and return the records of the long ones."""
        number = len(self._stops)
        if not number:
            return []
        if number == CAPACITY:
            self.lost += 1
        began, ended = _pop(self._starts, number), _pop(self._stops, number)
        infos = _pop(self._infos, number)
        spans = list(map(sub, ended, began))
        if len(spans) < number or len(infos) < number or min(spans) < 0:
            self._begin_anew()
            return []
        self._is_new = False
        self.total_ns += sum(spans)
        self.collections += number
        if max(spans) < LONG_GC_NS:
            return []
        return [
            ["gc", end, info["generation"], ns, info["collected"]]
            for ns, end, info in zip(spans, ended, infos)
            if ns >= LONG_GC_NS
        ]

    def _begin_anew(self) -> None:
        # Somebody else changed the list during a collection; or we came during one, and have lost
        # nothing yet.
        self.lost += not self._is_new
        self._is_new = False
        self._starts.clear()
        self._stops.clear()
        self._infos.clear()


def _pop(items: deque[T], number: int) -> list[T]:
    return [items.popleft() for _ in range(min(number, len(items)))]

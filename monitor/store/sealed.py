"""Complete buckets: they no longer change, so they are read once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final, NamedTuple

from whyidle.monitor.store.records import Point

# The most lines of charts to keep, each with as many points as a chart has.
MOST_KEPT: Final = 256

# Returns the buckets of a span, and the moment up to which they are complete.
Read = Callable[[int, int], tuple[list[Point], int]]


class _Kept(NamedTuple):
    """The buckets of ``[start, end)``."""

    start: int
    end: int
    points: list[Point]


class Sealed:
    """Caches buckets by line; a span that has moved on only reads its new end."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = Lock()

    def points(self, of: Hashable, start: int, end: int, read: Read) -> list[Point]:
        """Return the buckets of a span that starts at a bucket; read only new ones."""
        with self._lock:
            kept = self._kept.get(of)
        if kept is None or not kept.start <= start <= kept.end <= end:
            kept = _Kept(start, start, [])
        new, sealed = read(kept.end, end)
        found = [point for point in kept.points if point.ts_ms >= start] + new
        until = max(kept.end, sealed)
        with self._lock:
            self._kept[of] = _Kept(start, until, [p for p in found if p.ts_ms < until])
            self._kept.move_to_end(of)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found

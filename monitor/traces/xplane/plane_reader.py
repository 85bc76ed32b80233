"""The second walk: the events of each plane, a few megabytes at a time, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import text
from whyidle.monitor.traces.model import Ids, Ints
from whyidle.monitor.traces.xplane.chunks import Chunks, Part
from whyidle.monitor.traces.xplane.clock import Clock
from whyidle.monitor.traces.xplane.columns import Columns
from whyidle.monitor.traces.xplane.events import Events, WantedStats, events_of
from whyidle.monitor.traces.xplane.interning import Interner, Lookup
from whyidle.monitor.traces.xplane.planes import Line, Plane

# The stats that are read, and the column that each fills.
_NUMBERS: Final = {"correlation_id": "correlation", "_r": "root", "step_num": "step"}
_TEXTS: Final = {
    "hlo_op": "hlo_op",
    "hlo_module": "hlo_module",
    "tf_op": "tf_op",
    "memcpy_details": "details",
    "memset_details": "details",
    "Memset_details": "details",
}
_COLUMNS: Final = _NUMBERS | _TEXTS
CALL_STATS: Final = ("correlation_id", "_r", "step_num")
HOST_STATS: Final = (*CALL_STATS, "hlo_op", "hlo_module", "tf_op")
DEVICE_STATS: Final = ("correlation_id", *(name for name in _TEXTS if name != "tf_op"))
# A plane has one number for each of them: what has more means ill.
_MOST_KEYS: Final = 16


@dataclass(frozen=True, slots=True)
class PlaneRequest:
    """What to read of a plane, and where it goes."""

    line: Callable[[Line], bool]
    stats: tuple[str, ...]
    take: Callable[[Columns], None]


NOTHING: Final = PlaneRequest(lambda _: False, (), lambda _: None)


@dataclass(frozen=True, slots=True)
class _Job:
    """One plane to read: what goes to the thread that fills buffers, and what is done with it."""

    part: Part
    keys: dict[int, str]
    names: Lookup
    begins: Ints
    take: Callable[[Columns], None]


class PlaneReader:
    """Reads one plane after the other, in the order of the file."""

    def __init__(self, chunks: Chunks, intern: Interner, clock: Clock) -> None:
        self._chunks = chunks
        self._intern = intern
        self._clock = clock
        self.damaged = 0  # events

    def read(self, planes: Iterable[tuple[Plane, PlaneRequest]]) -> None:
        """Hand over the events of the lines that are wanted, and count those of the others."""
        jobs = [self._job(plane, request) for plane, request in planes]
        for place, chunk in self._chunks.of([job.part for job in jobs]):
            job = jobs[place]
            events, damaged = events_of(chunk.buffer, chunk.said, chunk.line, job.part.wanted)
            self.damaged += damaged
            columns = self._columns(events, job.names(events.name), job.begins, job.keys)
            if len(columns):
                job.take(columns)

    def _job(self, plane: Plane, request: PlaneRequest) -> _Job:
        named = ((key, text(data)) for key, data in plane.stats.items())
        keys = dict(islice(((k, n) for k, n in named if n in request.stats), _MOST_KEYS))
        lines = np.array([request.line(line) for line in plane.lines], np.bool_)
        part = Part(plane, lines, self._wanted(plane, keys))
        shown = plane.events | plane.shown if plane.shown else plane.events
        names = Lookup(shown, self._intern)
        return _Job(part, keys, names, self._clock.begins(plane.lines), request.take)

    def _wanted(self, plane: Plane, keys: dict[int, str]) -> WantedStats:
        return WantedStats(
            numbers=tuple(key for key, name in keys.items() if name in _NUMBERS),
            texts=tuple(key for key, name in keys.items() if name in _TEXTS),
            refer=Lookup(plane.stats, self._intern),
            keep=self._intern,
        )

    def _columns(self, events: Events, name: Ids, begins: Ints, keys: dict[int, str]) -> Columns:
        found: dict[str, Ints | Ids] = {}
        for key, stat in keys.items():
            column, values = _COLUMNS[stat], events.stats[key]
            # Two stats may fill one column; no event has both.
            found[column] = np.maximum(found[column], values) if column in found else values
        start, end, sane = self._clock.spans(begins, events.line, events.start, events.duration)
        columns = Columns.of(line=events.line, name=name, start=start, end=end, **found)
        return columns if sane is None else columns.take(sane)

"""What each event says: its name, its times, and the few stats that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import Damaged
from whyidle.monitor.traces.model import Flags, Ids, Ints
from whyidle.monitor.traces.xplane import compiled, stats
from whyidle.monitor.traces.xplane.odd import OddEvent, read_odd
from whyidle.monitor.traces.xplane.vector import Buffer, varints

# The fields of an event before its stats, as tags.
_HEAD: Final = {"name": 0x08, "start": 0x10, "duration": 0x18}


@dataclass(frozen=True, slots=True)
class WantedStats:
    """The stats to read, by metadata_id, and how to keep one that is a text."""

    numbers: tuple[int, ...]
    texts: tuple[int, ...]
    refer: Callable[[Ints], Ids]  # what refers to a text -> a name
    keep: Callable[[str], int]  # a text -> a name

    @property
    def ids(self) -> tuple[int, ...]:
        """All of them."""
        return self.numbers + self.texts


@dataclass(slots=True)
class Said:
    """What events say, as it stands in the buffer; times in ps since the begin of their line."""

    bodies: Ints
    ends: Ints
    name: Ints  # metadata_id
    start: Ints
    duration: Ints
    stats: Ints  # a row for each one asked for, as stats.py has them
    odd: Flags  # to be read field by field

    @classmethod
    def of(cls, buffer: Buffer, bodies: Ints, ends: Ints, wanted: WantedStats) -> Said:
        """Decode the events that lie there."""
        rows = len(bodies)
        name, start, duration = (np.empty(rows, np.int64) for _ in range(3))
        values = np.empty((len(wanted.ids), rows), np.int64)
        said = cls(bodies, ends, name, start, duration, values, np.zeros(rows, np.bool_))
        if compiled.scan is None:
            values[: len(wanted.numbers)], values[len(wanted.numbers) :] = -1, stats.NONE
            _decode(buffer, said, wanted)
        else:
            columns = name, start, duration, values, said.odd
            compiled.scan.decode(buffer.data, bodies, ends, wanted.numbers, wanted.texts, *columns)
        return said


@dataclass(slots=True)
class Events:
    """Events in the order of the file."""

    line: Ids
    name: Ints  # metadata_id
    start: Ints
    duration: Ints
    stats: dict[int, Ints | Ids]  # of each stat asked for; -1 where the event has none

    def take(self, rows: Ints | Flags) -> Events:
        """Return these rows only."""
        found = {key: column[rows] for key, column in self.stats.items()}
        line, name = self.line[rows], self.name[rows]
        return Events(line, name, self.start[rows], self.duration[rows], found)


def events_of(buffer: Buffer, said: Said, line: Ids, wanted: WantedStats) -> tuple[Events, int]:
    """Give names their numbers, and read odd events again; return how many are damaged, too."""
    odd = np.flatnonzero(said.odd)
    said.stats[:, odd] = stats.NONE
    found: dict[int, Ints | Ids] = {}
    for key, column in zip(wanted.ids, said.stats, strict=True):
        found[key] = column if key in wanted.numbers else _names(buffer, column, wanted)
    events = Events(line, said.name, said.start, said.duration, found)
    return _mend(buffer, events, said, odd, wanted) if len(odd) else (events, 0)


def _names(buffer: Buffer, column: Ints, wanted: WantedStats) -> Ids:
    refers = column >= stats.UNKNOWN
    if refers.all():
        return wanted.refer(column)
    names: Ids = np.full(len(column), -1, np.int32)
    names[refers] = wanted.refer(column[refers])
    texts = np.flatnonzero(~refers & (column != stats.NONE))
    names[texts] = [wanted.keep(stats.text_at(buffer, said)) for said in column[texts].tolist()]
    return names


def _decode(buffer: Buffer, said: Said, wanted: WantedStats) -> None:
    """Decode many events at once: what the compiled loop does one after the other."""
    at, end, odd = said.bodies, said.ends, said.odd
    for column, tag in _HEAD.items():
        value, size = varints(buffer.words[at + 1])
        there = (buffer.bytes[at] == tag) & (at < end)
        odd |= there & (size == 0)
        getattr(said, column)[:] = np.where(there, value, 0)
        at = np.where(there, at + 1 + size, at)
    odd |= at > end
    rows = np.flatnonzero((at < end) & ~odd)
    places, again = stats.walk(buffer, at, end, rows, wanted.ids)
    odd[again] = True
    for key, place, column in zip(wanted.ids, places, said.stats, strict=True):
        rows = np.flatnonzero(place)
        column[rows] = stats.values(buffer, place[rows], numbers=key in wanted.numbers)


def _mend(
    buffer: Buffer, events: Events, said: Said, rows: Ints, wanted: WantedStats
) -> tuple[Events, int]:
    """Read the odd events one by one, and leave out what is none."""
    keep = np.ones(len(events.name), np.bool_)
    damaged = 0
    bodies, ends = said.bodies[rows].tolist(), said.ends[rows].tolist()
    for row, at, end in zip(rows.tolist(), bodies, ends, strict=True):
        try:
            event = read_odd(buffer.data, at, end, wanted.ids)
        except Damaged:
            event, damaged = None, damaged + 1
        if event is None:
            keep[row] = False
        else:
            _put(events, row, event, wanted)
    return events.take(keep), damaged


def _put(events: Events, row: int, event: OddEvent, wanted: WantedStats) -> None:
    events.name[row], events.start[row] = event.name, event.start
    events.duration[row] = event.duration
    for key in wanted.numbers:
        events.stats[key][row] = event.numbers.get(key, -1)
    for key in wanted.texts:
        name = -1
        if key in event.texts:
            name = wanted.keep(event.texts[key])
        elif key in event.refs:
            name = int(wanted.refer(np.array([event.refs[key]]))[0])
        events.stats[key][row] = name

"""What each event says: its name, its times, and the few stats that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import Damaged
from whyidle.monitor.traces.model import Flags, Ids, Ints
from whyidle.monitor.traces.xplane import stats
from whyidle.monitor.traces.xplane.layouts import Layouts, Places
from whyidle.monitor.traces.xplane.odd import OddEvent, read_odd
from whyidle.monitor.traces.xplane.vector import Buffer, varints

# The fields of an event before its stats, as tags.
_ID: Final = 0x08
_OFFSET: Final = 0x10
_DURATION: Final = 0x18


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
class Events:
    """Events in the order of the file; times in ps since the begin of their line."""

    begin: Ints  # place in the buffer
    name: Ints  # metadata_id
    start: Ints
    duration: Ints
    stats: dict[int, Ints]  # of each stat asked for; -1 where the event has none

    def take(self, rows: Ints | Flags) -> Events:
        """Return these rows only."""
        found = {key: column[rows] for key, column in self.stats.items()}
        begin, name = self.begin[rows], self.name[rows]
        return Events(begin, name, self.start[rows], self.duration[rows], found)


class Decoder:
    """Decodes the events of one plane."""

    def __init__(self, buffer: Buffer, wanted: WantedStats) -> None:
        self._buffer = buffer
        self._wanted = wanted
        self._layouts = Layouts(wanted.ids)

    def decode(self, starts: Ints) -> tuple[Events, int]:
        """Decode the events that begin at these places; return them and how many are damaged."""
        buffer, ids = self._buffer, self._wanted.ids
        length, size = varints(buffer.words[starts + 1])
        body = starts + 1 + size
        end = body + length
        odd = np.zeros(len(starts), np.bool_)
        name, at = _optional(buffer, body, _ID, odd)
        start, at = _optional(buffer, at, _OFFSET, odd)
        duration, at = _optional(buffer, at, _DURATION, odd)
        odd |= at > end
        found = {key: np.full(len(starts), -1, np.int64) for key in ids}
        places, rest = self._layouts.find(buffer, at, end, np.flatnonzero((at < end) & ~odd))
        more, again = stats.walk(buffer, at, end, rest, ids)
        odd[again] = True
        self._keep([*places, *more], found)
        events = Events(starts, name, start, duration, found)
        if not odd.any():
            return events, 0
        return _mend(buffer, events, (body, end), np.flatnonzero(odd), self._wanted)

    def _keep(self, places: list[Places], columns: dict[int, Ints]) -> None:
        for key, column in columns.items():
            mine = [(rows, at) for which, rows, at in places if which == key]
            if mine:
                rows, at = (np.concatenate(parts) for parts in zip(*mine, strict=True))
                column[rows] = self._values(key, at)

    def _values(self, key: int, at: Ints) -> Ints | Ids:
        tag, number, begin = stats.values(self._buffer, at)
        if key in self._wanted.numbers:
            return np.where((tag == stats.UINT) | (tag == stats.INT), number, -1)
        refers = tag == stats.REF
        if refers.all():
            return self._wanted.refer(number)
        names = np.full(len(at), -1)
        names[refers] = self._wanted.refer(number[refers])
        texts = tag == stats.STRING
        found = stats.texts(self._buffer, begin[texts], number[texts])
        names[texts] = [self._wanted.keep(t) for t in found]
        return names


def _optional(buffer: Buffer, at: Ints, tag: int, odd: Flags) -> tuple[Ints, Ints]:
    """Decode a number that may not be there, in which case it is 0."""
    value, size = varints(buffer.words[at + 1])
    there = buffer.bytes[at] == tag
    odd |= there & (size == 0)
    if there.all():
        return value, at + 1 + size
    return np.where(there, value, 0), np.where(there, at + 1 + size, at)


def _mend(
    buffer: Buffer, events: Events, spans: tuple[Ints, Ints], rows: Ints, wanted: WantedStats
) -> tuple[Events, int]:
    """Read the odd events one by one, and leave out what is none."""
    keep = np.ones(len(events.begin), np.bool_)
    damaged = 0
    for row, at, end in zip(rows.tolist(), *(s[rows].tolist() for s in spans), strict=True):
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

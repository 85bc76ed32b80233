"""The stats of many events at once, where they lie as in another event: most of them do.

A writer gives the events of one kind the same stats in the same order, so the bytes that say which
stat comes and how long it is stand at the same places. One event is walked; the others are compared
with it, all such bytes of them. What differs is left to ``stats``, which walks every event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from whyidle.monitor.traces.model import Flags, Ints
from whyidle.monitor.traces.xplane.vector import Buffer, Words
from whyidle.monitor.traces.xplane.wire import BYTES, Damaged, fields, varint

# Stats longer than this, groups smaller than this, and more layouts of one length do not pay.
_LONGEST: Final = 512
_FEW: Final = 48
_TRIES: Final = 4
# Events compared at once: what they need stays in the cache.
_BLOCK: Final = 1024

# A stat that was asked for: its metadata_id, in which events, and where the tag of its value is.
Places = tuple[int, Ints, Ints]


@dataclass(slots=True)
class _Layout:
    """Where the stats of an event lie, and the bytes that prove it."""

    width: int  # words of one event
    bytes: Words  # the event, so often that a block can be compared
    proof: Words  # which bits of it must be the same
    wanted: list[tuple[int, int]]  # metadata_id, place of the value's tag

    @classmethod
    def of(cls, buffer: Buffer, at: int, end: int, ids: tuple[int, ...]) -> Self | None:
        """Learn from one event; None where it is odd."""
        width = (end - at + 7) // 8
        proof = bytearray(width * 8)
        wanted, stat = [], at
        try:
            for number, wire, begin, stop in fields(buffer.data, at, end):
                key, tag = varint(buffer.data, begin + 1, stop)
                if number != 4 or wire != BYTES or buffer.data[begin] != 8 or tag >= stop:
                    return None
                proof[stat - at : tag + 1 - at] = b"\xff" * (tag + 1 - stat)
                wanted += [(key, tag - at)] if key in ids else []
                stat = stop
        except Damaged:
            return None
        first = buffer.data[at : at + width * 8]
        words = [np.tile(np.frombuffer(half, "<u8"), _BLOCK) for half in (first, proof)]
        return cls(width, words[0], words[1], wanted)

    def unlike(self, buffer: Buffer, at: Ints) -> Flags:
        """Tell which of the events at these places lie otherwise."""
        unlike = np.zeros(len(at), np.bool_)
        runs = buffer.runs(self.width)
        for i in range(0, len(at), _BLOCK):
            words = runs[at[i : i + _BLOCK]].view("<u8")
            words ^= self.bytes[: len(words)]
            words &= self.proof[: len(words)]
            if words.any():
                unlike[i + np.flatnonzero(words) // self.width] = True
        return unlike


class Layouts:
    """The layouts seen so far in a plane, by the length of the stats."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._ids = ids
        self._known: dict[int, list[_Layout]] = {}

    def find(self, buffer: Buffer, at: Ints, end: Ints, rows: Ints) -> tuple[list[Places], Ints]:
        """Find the stats asked for; return them and the events that are still to be walked."""
        length = np.minimum((end - at)[rows], _LONGEST + 1).astype(np.uint16)
        order = np.argsort(length, kind="stable")
        rows, length = rows[order], length[order]
        cuts = (np.flatnonzero(length[1:] != length[:-1]) + 1).tolist()
        places: list[Places] = []
        rest = [rows[:0]]
        for begin, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            group = rows[begin:stop]
            if len(group) >= _FEW and length[begin] <= _LONGEST:
                group = self._group(buffer, at, int(length[begin]), group, places)
            rest.append(group)
        return places, np.sort(np.concatenate(rest))

    def _group(
        self, buffer: Buffer, at: Ints, length: int, rows: Ints, places: list[Places]
    ) -> Ints:
        known = self._known.setdefault(length, [])
        for i in range(_TRIES):
            if len(rows) < _FEW:
                break
            if i == len(known):
                first = int(at[rows[0]])
                layout = _Layout.of(buffer, first, first + length, self._ids)
                if layout is None:
                    break
                known.append(layout)
            rows = _take(known[i], buffer, at, rows, places)
        return rows


def _take(layout: _Layout, buffer: Buffer, at: Ints, rows: Ints, places: list[Places]) -> Ints:
    begin = at[rows]
    unlike = layout.unlike(buffer, begin)
    rest = rows[:0]
    if unlike.any():
        rest, rows, begin = rows[unlike], rows[~unlike], begin[~unlike]
    places.extend((key, rows, begin + tag) for key, tag in layout.wanted)
    return rest

"""The stats of many events at once, where they lie as in another event: most of them do.

A writer gives the events of one kind the same stats in the same order, so the bytes that say which
stat comes and how long it is stand at the same places. One event is walked; the others are compared
with it, all such bytes of them. What differs is left to ``stats``, which walks every event.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np

from whyidle.monitor.core.protobuf import BYTES, Damaged, fields, varint
from whyidle.monitor.traces.model import Flags, Ints
from whyidle.monitor.traces.xplane.vector import Buffer, Words

# Stats longer than this, groups smaller than this, and more layouts of one length do not pay.
_LONGEST: Final = 512
_FEW: Final = 48
_TRIES: Final = 4
# Events compared at once: what they need stays in the cache.
_BLOCK: Final = 1024
# What all layouts of a plane may take.
_MEMORY: Final = 16 << 20

# A stat that was asked for: its metadata_id, in which events, and where the tag of its value is.
Places = tuple[int, Ints, Ints]


class _Layout:
    """Where the stats of an event lie, and the bytes that prove it."""

    def __init__(self, event: bytes, proof: bytes, wanted: list[tuple[int, int]]) -> None:
        self.width = len(event) // 8  # words
        self.wanted = wanted  # metadata_id, place of the value's tag
        self._one: tuple[Words, Words] = np.frombuffer(event, "<u8"), np.frombuffer(proof, "<u8")
        # The same, so often that a block of events can be compared at once.
        self._all = self._one
        self.rows = 1

    @classmethod
    def of(cls, buffer: Buffer, at: int, end: int, ids: tuple[int, ...]) -> Self | None:
        """Learn from one event; None where it is odd."""
        size = (end - at + 7) // 8 * 8
        proof = bytearray(size)
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
        return cls(bytes(buffer.data[at : at + size]), bytes(proof), wanted)

    def unlike(self, buffer: Buffer, at: Ints) -> Flags:
        """Mark the events at these places that are laid out otherwise."""
        self._grow(min(len(at), _BLOCK))
        unlike = np.zeros(len(at), np.bool_)
        runs = buffer.runs(self.width)
        event, proof = self._all
        for i in range(0, len(at), _BLOCK):
            words = runs[at[i : i + _BLOCK]].view("<u8")
            words ^= event[: len(words)]
            words &= proof[: len(words)]
            if words.any():
                unlike[i + np.flatnonzero(words) // self.width] = True
        return unlike

    def _grow(self, rows: int) -> None:
        if rows > self.rows:
            self.rows = min(1 << (rows - 1).bit_length(), _BLOCK)
            self._all = np.tile(self._one[0], self.rows), np.tile(self._one[1], self.rows)

    @property
    def memory(self) -> int:
        """How many bytes this takes."""
        return 16 * self.width * self.rows


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
        if sum(layout.memory for known in self._known.values() for layout in known) > _MEMORY:
            self._known.clear()
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

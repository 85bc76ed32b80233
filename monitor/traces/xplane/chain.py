"""Where each event of a buffer begins, and the proof that none is missed.

A walk that ends exactly where the next one began proves that one, from the first on, which begins
where the line does. Where it does not, the events between are walked one by one. Nothing is
guessed, except behind damaged bytes, where what looks like an event is taken for one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import BYTES, Damaged, fields, varint
from whyidle.monitor.traces.model import Flags, Ints
from whyidle.monitor.traces.xplane.vector import Buffer
from whyidle.monitor.traces.xplane.walks import EVENT, Piece, Walks, begin, walk

# A field of a line that is no event is a number or a name: no longer than this.
_HEADER: Final = 8 << 10


@dataclass(slots=True)
class FoundEvents:
    """The events of a buffer, and what else was between them."""

    starts: Ints
    stop: int  # the last piece is understood up to here
    others: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # line, then Field
    damaged: int = 0  # bytes left out


def find(buffer: Buffer, pieces: list[Piece]) -> FoundEvents:
    """Find every event of these pieces."""
    walks = begin(buffer, pieces)
    starts = walk(buffer, walks)
    same = walks.piece[1:] == walks.piece[:-1]
    loose = np.flatnonzero(np.r_[~same | (walks.finish[:-1] != walks.begin[1:]), True])
    return _Stitch(buffer, pieces, walks).run(starts, loose.tolist())


class _Stitch:
    """Goes on one by one from where a walk ended, until it meets the begin of another."""

    def __init__(self, buffer: Buffer, pieces: list[Piece], walks: Walks) -> None:
        self.data, self.pieces = buffer.data, pieces
        self.begin, self.piece = walks.begin.tolist(), walks.piece.tolist()
        self.stop, self.finish = walks.stop.tolist(), walks.finish.tolist()
        self.found = FoundEvents(np.zeros(0, np.int64), pieces[-1].end)
        self.added: list[int] = []
        self.wrong: list[int] = []  # walks that began inside an event

    def run(self, starts: Ints, loose: list[int]) -> FoundEvents:
        """Prove every walk; ``loose`` are those whose end is not the begin of the next one."""
        proven = 0
        for i in loose:
            if i >= proven:
                proven = self._go_on(i)
        if self.wrong:
            starts = starts[~self._inside(starts)]
        if self.added:
            starts = np.sort(np.r_[starts, np.array(self.added, np.int64)])
        self.found.starts = starts
        return self.found

    def _inside(self, starts: Ints) -> Flags:
        begin = np.array([self.begin[i] for i in self.wrong], np.int64)
        stop = np.array([self.stop[i] for i in self.wrong], np.int64)
        i = np.searchsorted(begin, starts, "right") - 1
        inside: Flags = (i >= 0) & (starts < stop[np.maximum(i, 0)])
        return inside

    def _go_on(self, i: int) -> int:
        """Continue walk ``i``; return the walk that it meets, or the first of the next piece."""
        piece, at, k = self.pieces[self.piece[i]], self.finish[i], i + 1
        last = self._end_of_piece(i)
        while at < piece.end:
            while k < last and self.begin[k] < at:
                self.wrong.append(k)
                k += 1
            if k < last and self.begin[k] == at:
                return k
            try:
                at = self._step(piece, at)
            except Damaged:
                # What looks like an event is taken for one from here.
                resume = self.begin[k] if k < last else piece.end
                self.found.damaged += resume - at
                at = resume
            except _Cut:
                self.found.stop = at
                break
        self.wrong.extend(range(k, last))
        return last

    def _end_of_piece(self, i: int) -> int:
        return bisect_right(self.piece, self.piece[i])

    def _step(self, piece: Piece, at: int) -> int:
        data = self.data
        if data[at] == EVENT:
            try:
                length, body = varint(data, at + 1, piece.end)
            except Damaged:
                if piece.beyond and piece.end - at <= 10:
                    raise _Cut from None
                raise
            if body + length > piece.end + piece.beyond:
                raise Damaged
            if body + length > piece.end:
                raise _Cut
            self.added.append(at)
            return body + length
        return self._other(piece, at)

    def _other(self, piece: Piece, at: int) -> int:
        """Step over a field of the line that is no event."""
        try:
            number, wire, value, after = next(fields(self.data, at, piece.end))
        except Damaged:
            if piece.beyond and piece.end - at <= _HEADER:
                raise _Cut from None
            raise
        if number == EVENT >> 3 or wire not in (0, BYTES):
            raise Damaged
        self.found.others.append((piece.line, number, wire, value, after))
        return after


class _Cut(Exception):  # noqa: N818  no failure: the rest comes with the next buffer
    """The piece ends inside a field of the line."""

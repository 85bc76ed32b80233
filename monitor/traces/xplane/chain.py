"""Where each event of a buffer begins and ends: each says how long it is, so one can only walk.

Nothing is guessed, except behind damaged bytes, where what looks like an event is taken for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.core.protobuf import BYTES, Damaged, fields, varint
from whyidle.monitor.traces.model import Ints
from whyidle.monitor.traces.xplane import compiled
from whyidle.monitor.traces.xplane.vector import Buffer

EVENT: Final = 0x22
# A field of a line that is no event is a number or a name: no longer than this.
_HEADER: Final = 8 << 10
# An event: its tag and length, metadata_id of one to three bytes, then offset_ps.
_LOOKS: Final = re.compile(rb"\x22[\x80-\xff]?[\x00-\x7f]\x08[\x80-\xff]{0,2}[\x00-\x7f]\x10")
# What is left out behind damage before one is looked for: a file of nothing else takes no time.
_DAMAGED: Final = 256


@dataclass(slots=True)
class Piece:
    """A part of one line in a buffer; it begins with a field of the line."""

    line: int
    begin: int
    end: int
    beyond: int  # bytes of the line that are not in the buffer yet


@dataclass(slots=True)
class FoundEvents:
    """The events of a buffer, and what else was between them."""

    bodies: Ints  # where they begin, behind their lengths
    ends: Ints
    counts: list[int]  # of each piece
    stop: int  # the last piece is understood up to here
    others: list[tuple[int, int, int, int, int]]  # line, then Field
    damaged: int  # bytes left out


def find(buffer: Buffer, pieces: list[Piece]) -> FoundEvents:
    """Find every event of these pieces."""
    return _Walk(buffer).run(pieces)


@dataclass(slots=True)
class _Walk:
    """Goes from event to event, and field by field where there is something else."""

    buffer: Buffer
    row: int = 0
    stop: int = 0
    others: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    damaged: int = 0

    def run(self, pieces: list[Piece]) -> FoundEvents:
        counts = []
        for piece in pieces:
            before = self.row
            self._through(piece)
            counts.append(self.row - before)
        bodies, ends = self.buffer.bodies[: self.row], self.buffer.ends[: self.row]
        return FoundEvents(bodies, ends, counts, self.stop, self.others, self.damaged)

    def _through(self, piece: Piece) -> None:
        walk = _walk if compiled.scan is None else compiled.scan.walk
        data, bodies, ends = self.buffer.data, self.buffer.bodies, self.buffer.ends
        at = piece.begin
        while at < piece.end:
            self.row, at = walk(data, at, piece.end, bodies, ends, self.row)
            if at < piece.end:
                try:
                    at = self._step(piece, at)
                except Damaged:
                    found = _LOOKS.search(data, at + _DAMAGED, piece.end)
                    resume = found.start() if found else piece.end
                    self.damaged += resume - at
                    at = resume
                except _Cut:
                    break
        self.stop = at

    def _step(self, piece: Piece, at: int) -> int:
        data = self.buffer.data
        if data[at] != EVENT:
            return self._other(piece, at)
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
        self.buffer.bodies[self.row], self.buffer.ends[self.row] = body, body + length
        self.row += 1
        return body + length

    def _other(self, piece: Piece, at: int) -> int:
        """Step over a field of the line that is no event."""
        try:
            number, wire, value, after = next(fields(self.buffer.data, at, piece.end))
        except Damaged:
            if piece.beyond and piece.end - at <= _HEADER:
                raise _Cut from None
            raise
        if number == EVENT >> 3 or wire not in (0, BYTES):
            raise Damaged
        self.others.append((piece.line, number, wire, value, after))
        return after


class _Cut(Exception):  # noqa: N818  no failure: the rest comes with the next buffer
    """The piece ends inside a field of the line."""


def _walk(  # noqa: PLR0913, PLR0917  as its compiled twin
    data: bytearray, at: int, end: int, bodies: Ints, ends: Ints, row: int
) -> tuple[int, int]:
    """Note where plain events begin and end, from ``row`` on; return the next, and the place."""
    begun, ended = [], []
    while at < end and data[at] == EVENT:
        length, body = data[at + 1], at + 2
        if length > 127:
            more, body = data[at + 2], at + 3
            if more > 127:
                break
            length += (more - 1) << 7
        stop = body + length
        if stop > end:
            break
        begun.append(body)
        ended.append(stop)
        at = stop
    bodies[row : row + len(begun)], ends[row : row + len(ended)] = begun, ended
    return row + len(begun), at

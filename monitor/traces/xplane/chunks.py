"""The lines of a plane as buffers of a few megabytes, with the places of their events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import varint
from whyidle.monitor.traces.model import Flags, Ids, Ints
from whyidle.monitor.traces.stream import Stream
from whyidle.monitor.traces.xplane import chain
from whyidle.monitor.traces.xplane.chain import FoundEvents
from whyidle.monitor.traces.xplane.planes import Plane
from whyidle.monitor.traces.xplane.vector import Buffer
from whyidle.monitor.traces.xplane.walks import Piece

CHUNK: Final = 2 << 20
# Less room than this in a buffer is not worth another line.
_ROOM: Final = 4 << 10
# What is read of one field of a line.
_SAID: Final = 4 << 10


@dataclass(slots=True)
class Chunk:
    """What is in the buffer now: events, and the lines that they belong to."""

    starts: Ints
    begins: Ints  # of the pieces
    lines: Ids  # of the pieces

    def lines_of(self, starts: Ints) -> Ids:
        """Return the lines of these events."""
        if len(self.begins) == 1:
            return np.full(len(starts), self.lines[0], np.int32)
        counts = np.diff(np.searchsorted(starts, np.r_[self.begins, np.iinfo(np.int64).max]))
        return np.repeat(self.lines, counts)

    def only(self, lines: Flags) -> Ints:
        """Return the events of some lines."""
        if lines[self.lines].all():
            return self.starts
        return self.starts[lines[self.lines_of(self.starts)]]


class Chunks:
    """Reads planes in the order of the file."""

    def __init__(self, stream: Stream, progress: Callable[[int], None]) -> None:
        self._stream = stream
        self._progress = progress
        self.buffer = Buffer(CHUNK)
        self.events = 0
        self.damaged = 0  # bytes

    def of(self, plane: Plane) -> Iterator[Chunk]:
        """Give the lines of one plane."""
        for pieces, found in self._filled(plane):
            self._learn(plane, found)
            self.events += len(found.starts)
            self.damaged += found.damaged
            begins = np.array([piece.begin for piece in pieces], np.int64)
            lines = np.array([piece.line for piece in pieces], np.int32)
            yield Chunk(found.starts, begins, lines)
            self._progress(self._stream.consumed)

    def _learn(self, plane: Plane, found: FoundEvents) -> None:
        """Take in what lines say behind their events."""
        for line, number, wire, value, after in found.others:
            said = bytes(self.buffer.view[value : min(after, value + _SAID)]) if wire else b""
            plane.lines[line].learn(number, wire, value, said)

    def _filled(self, plane: Plane) -> Iterator[tuple[list[Piece], FoundEvents]]:
        """Fill the buffer with as many lines as it holds, and with what was left of the last."""
        pieces: list[Piece] = []
        at = 0
        for index, line in enumerate(plane.lines):
            self._stream.skip(line.begin - self._stream.position)
            left, begin = line.end - line.begin, at
            while left and (block := self._stream.read(min(left, CHUNK - at))):
                at, left = self.buffer.put(at, block), left - len(block)
                pieces.append(Piece(index, begin, at, left))
                if left:
                    found = chain.find(self.buffer, pieces)
                    yield pieces, found
                    pieces, begin, at = [], 0, self._carry(found.stop, at)
                    if at == CHUNK:
                        left, at = self._leave_out(left), 0
            if CHUNK - at < _ROOM:
                yield pieces, chain.find(self.buffer, pieces)
                pieces, at = [], 0
        if pieces:
            yield pieces, chain.find(self.buffer, pieces)

    def _carry(self, stop: int, at: int) -> int:
        return self.buffer.put(0, bytes(self.buffer.view[stop:at]))

    def _leave_out(self, left: int) -> int:
        """Step over an event that fills the whole buffer; return what is left of its line."""
        length, body = varint(self.buffer.data, 1, CHUNK)
        rest = min(max(body + length - CHUNK, 0), left)
        self._stream.skip(rest)
        self.events += 1
        self.damaged += CHUNK + rest
        return left - rest

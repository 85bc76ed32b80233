"""The lines of a plane as buffers of a few megabytes, and what their events say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import varint
from whyidle.monitor.traces.model import Flags, Ids
from whyidle.monitor.traces.stream import Stream, made_ahead
from whyidle.monitor.traces.xplane.chain import FoundEvents, Piece, find
from whyidle.monitor.traces.xplane.events import Said, WantedStats
from whyidle.monitor.traces.xplane.planes import Plane
from whyidle.monitor.traces.xplane.vector import Buffer

CHUNK: Final = 2 << 20
# Less room than this in a buffer is not worth another line.
_ROOM: Final = 4 << 10
# What is read of one field of a line.
_SAID: Final = 4 << 10


@dataclass(slots=True)
class Chunk:
    """What is in a buffer until the next one is asked for: events, and the lines they are of."""

    buffer: Buffer
    found: FoundEvents
    said: Said
    line: Ids
    consumed: int  # bytes of the file on disk


class Chunks:
    """Reads planes in the order of the file."""

    def __init__(self, stream: Stream, progress: Callable[[int], None]) -> None:
        self._stream = stream
        self._progress = progress
        # One is filled while what is in the other is worked on.
        self._buffers = [Buffer(CHUNK), Buffer(CHUNK)]
        self.events = 0
        self.damaged = 0  # bytes

    def of(self, plane: Plane, lines: Flags, wanted: WantedStats) -> Iterator[Chunk]:
        """Give what the events of these lines say, and count those of the others."""
        chunks = _Filling(self, self._stream, plane, lines, wanted).chunks()
        large = sum(line.end - line.begin for line in plane.lines) > CHUNK
        for chunk in made_ahead(chunks) if large else chunks:
            _learn(plane, chunk)
            yield chunk
            self._progress(chunk.consumed)

    def next_buffer(self) -> Buffer:
        """Take turns."""
        self._buffers.reverse()
        return self._buffers[0]


def _learn(plane: Plane, chunk: Chunk) -> None:
    """Take in what lines say behind their events."""
    for line, number, wire, value, after in chunk.found.others:
        said = bytes(chunk.buffer.view[value : min(after, value + _SAID)]) if wire else b""
        plane.lines[line].learn(number, wire, value, said)


@dataclass(slots=True)
class _Filling:
    """One plane on its way into buffers, in a thread of its own: it must not touch the plane."""

    chunks_: Chunks
    stream: Stream
    plane: Plane
    wanted_lines: Flags
    wanted: WantedStats

    def chunks(self) -> Iterator[Chunk]:
        """Fill buffers with as many lines as they hold, and with what was left of the last."""
        pieces: list[Piece] = []
        buffer, at = self.chunks_.next_buffer(), 0
        for index, line in enumerate(self.plane.lines):
            self.stream.skip(line.begin - self.stream.position)
            left, begin = line.end - line.begin, at
            while left and (size := self.stream.fill(buffer.view[at : min(at + left, CHUNK)])):
                at, left = at + size, left - size
                pieces.append(Piece(index, begin, at, left))
                if left:
                    chunk = self._chunk(buffer, pieces)
                    yield chunk
                    rest = buffer.view[chunk.found.stop : at]
                    buffer = self.chunks_.next_buffer()
                    pieces, begin, at = [], 0, buffer.put(0, rest)
                    if at == CHUNK:
                        left, at = self._leave_out(buffer, left), 0
            if CHUNK - at < _ROOM:
                yield self._chunk(buffer, pieces)
                pieces, buffer, at = [], self.chunks_.next_buffer(), 0
        if pieces:
            yield self._chunk(buffer, pieces)

    def _chunk(self, buffer: Buffer, pieces: list[Piece]) -> Chunk:
        found = find(buffer, pieces)
        self.chunks_.events += len(found.bodies)
        self.chunks_.damaged += found.damaged
        bodies, ends = found.bodies, found.ends
        line = np.repeat(np.array([piece.line for piece in pieces], np.int32), found.counts)
        if not all(self.wanted_lines[piece.line] for piece in pieces):
            mine = self.wanted_lines[line]
            bodies, ends, line = bodies[mine], ends[mine], line[mine]
        said = Said.of(buffer, bodies, ends, self.wanted)
        return Chunk(buffer, found, said, line, self.stream.consumed)

    def _leave_out(self, buffer: Buffer, left: int) -> int:
        """Step over an event that fills the whole buffer; return what is left of its line."""
        length, body = varint(buffer.data, 1, CHUNK)
        rest = min(max(body + length - CHUNK, 0), left)
        self.stream.skip(rest)
        self.chunks_.events += 1
        self.chunks_.damaged += CHUNK + rest
        return left - rest

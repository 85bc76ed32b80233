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


@dataclass(frozen=True, slots=True)
class Part:
    """What to read of a plane: these lines, and these stats of their events."""

    plane: Plane
    lines: Flags
    wanted: WantedStats


class Chunks:
    """Reads planes in the order of the file."""

    def __init__(self, stream: Stream, progress: Callable[[int], None]) -> None:
        self._stream = stream
        self._progress = progress
        # One is filled while what is in the other is worked on.
        self._buffers = [Buffer(CHUNK), Buffer(CHUNK)]
        self.events = 0
        self.damaged = 0  # bytes

    def of(self, parts: list[Part]) -> Iterator[tuple[int, Chunk]]:
        """Give what the events of these lines say, with the place of their part; count others'."""
        made = (
            (place, chunk)
            for place, part in enumerate(parts)
            for chunk in _Filling(self, self._stream, part).chunks()
        )
        size = sum(line.end - line.begin for part in parts for line in part.plane.lines)
        for place, chunk in made_ahead(made) if size > CHUNK else made:
            _learn(parts[place].plane, chunk)
            yield place, chunk
            self._progress(chunk.consumed)

    @property
    def buffer(self) -> Buffer:
        """The one that nobody reads."""
        return self._buffers[0]

    def next_buffer(self) -> Buffer:
        """Take turns, once one was handed over, and only then: the other may still be read."""
        self._buffers.reverse()
        return self.buffer


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
    part: Part

    def chunks(self) -> Iterator[Chunk]:
        """Fill buffers with as many lines as they hold, and with what was left of the last."""
        pieces: list[Piece] = []
        buffer, at = self.chunks_.buffer, 0
        for index, line in enumerate(self.part.plane.lines):
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
            self.chunks_.next_buffer()

    def _chunk(self, buffer: Buffer, pieces: list[Piece]) -> Chunk:
        found = find(buffer, pieces)
        self.chunks_.events += len(found.bodies)
        self.chunks_.damaged += found.damaged
        bodies, ends = found.bodies, found.ends
        line = np.repeat(np.array([piece.line for piece in pieces], np.int32), found.counts)
        if not all(self.part.lines[piece.line] for piece in pieces):
            mine = self.part.lines[line]
            bodies, ends, line = bodies[mine], ends[mine], line[mine]
        said = Said.of(buffer, bodies, ends, self.part.wanted)
        return Chunk(buffer, found, said, line, self.stream.consumed)

    def _leave_out(self, buffer: Buffer, left: int) -> int:
        """Step over an event that fills the whole buffer; return what is left of its line."""
        length, body = varint(buffer.data, 1, CHUNK)
        rest = min(max(body + length - CHUNK, 0), left)
        self.stream.skip(rest)
        self.chunks_.events += 1
        self.chunks_.damaged += CHUNK + rest
        return left - rest

"""A place in a stream, with enough of the bytes behind it to read field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from whyidle.monitor.core.protobuf import BYTES, FIXED32, FIXED64, VARINT, Damaged, Field, varint
from whyidle.monitor.traces.stream import Stream

_BLOCK: Final = 64 << 10
_FIXED: Final = {FIXED64: 8, FIXED32: 4}
_HEAD: Final = 20  # bytes of the head of a field, at most
# A profile has fewer fields than this beside its events.
_FIELDS: Final = 1_000_000


class Cursor:
    """Reads fields from a stream, and leaves out what is not wanted."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._fields = 0
        self.data = b""
        self.at = 0  # in data

    @property
    def position(self) -> int:
        """Bytes of the stream before this place."""
        return self._stream.position - len(self.data) + self.at

    @property
    def near_end(self) -> bool:
        """Whether the stream has not even the head of a field left."""
        return self.have(_HEAD) < _HEAD

    def have(self, size: int) -> int:
        """Bring this many bytes into ``data``, or as many as there are; return how many are."""
        here = len(self.data) - self.at
        if here < size:
            self.data = self.data[self.at :] + self._stream.read(max(size - here, _BLOCK))
            self.at = 0
            here = len(self.data)
        return min(here, size)

    def skip_to(self, position: int) -> None:
        """Leave out what lies before a place."""
        size = position - self.position
        here = len(self.data) - self.at
        if size <= here:
            self.at += max(size, 0)
        else:
            self.data, self.at = b"", 0
            self._stream.skip(size - here)

    def fields(self, end: int) -> Iterator[Field]:
        """Walk the fields before a place; what the caller leaves of one is left out.

        Bytes are not read: a field of bytes begins where the cursor stands. A file that is cut off
        ends the walk, too.
        """
        while self.position < end and self.have(1):
            number, wire, value = self._head()
            begin = self.position
            stop = begin if wire == VARINT else begin + value
            if stop > end:
                raise Damaged
            yield number, wire, value if wire == VARINT else begin, stop
            self.skip_to(stop)

    def _head(self) -> tuple[int, int, int]:
        """Read a number, a wire type, and a value or a length."""
        self._fields += 1
        here = self.have(_HEAD)  # moves ``at``
        end = self.at + here
        key, at = varint(self.data, self.at, end)
        wire = key & 7
        value = _FIXED.get(wire, 0)
        if wire in (VARINT, BYTES):
            value, at = varint(self.data, at, end)
        elif not value:
            raise Damaged
        if self._fields > _FIELDS:
            raise Damaged
        self.at = at
        return key >> 3, wire, value

    def take(self, stop: int, most: int) -> bytes:
        """Return the bytes before a place, no more than so many."""
        size = self.have(min(stop - self.position, most))
        return self.data[self.at : self.at + size]

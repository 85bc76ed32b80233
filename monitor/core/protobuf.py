"""Protocol buffers on the wire, one field at a time, read and written.

Field numbers are facts of the .proto files, and stand where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED: Final = {FIXED64: 8, FIXED32: 4}
_MOST: Final = 10  # bytes of a varint
_WORD: Final = 1 << 64

# A field: its number, its wire type, its value or where its bytes begin, and where it ends.
Field = tuple[int, int, int, int]


class Damaged(Exception):  # noqa: N818  a fact about the bytes, reported as a warning
    """The bytes at this place are no message."""


def varint(data: bytes | bytearray, at: int, end: int) -> tuple[int, int]:
    """Return a number and the place behind it."""
    value = shift = 0
    for place in range(at, min(end, at + _MOST)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _WORD, place + 1
        shift += 7
    raise Damaged


def signed(value: int) -> int:
    """Read 64 bits as a signed number."""
    return value - _WORD if value >> 63 else value


def fields(data: bytes | bytearray, at: int, end: int) -> Iterator[Field]:
    """Walk the fields of one message."""
    while at < end:
        key, at = varint(data, at, end)
        wire = key & 7
        if wire == VARINT:
            value, stop = varint(data, at, end)
        elif wire == BYTES:
            length, value = varint(data, at, end)
            stop = value + length
        elif wire in _FIXED:
            value, stop = at, at + _FIXED[wire]
        else:
            raise Damaged
        if stop > end:
            raise Damaged
        yield key >> 3, wire, value, stop
        at = stop


def text(data: bytes | bytearray) -> str:
    """Read bytes as text, whatever they are."""
    return data.decode(errors="replace")


def written(number: int, value: int | bytes) -> bytes:
    """Return a field: a number, or bytes (a text, a message)."""
    if isinstance(value, int):
        return _varint(number << 3 | VARINT) + _varint(value)
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))

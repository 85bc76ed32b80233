"""Encode planes, lines and events of an XPlane, a column of many events at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Rows = tuple[NDArray[np.uint8], NDArray[np.bool_]]  # bytes of each row, padded; which of them count


DOUBLE, UINT, INT, STRING, REF = 0x11, 0x18, 0x20, 0x2A, 0x38
EPOCH_NS: Final = 1_771_595_650_000_000_000


def varint(values: Array) -> Rows:
    """Encode a column of numbers."""
    unsigned = values.astype(np.uint64)[:, None] >> (np.arange(10, dtype=np.uint64) * np.uint64(7))
    unsigned[:, 9] &= np.uint64(1)
    more = np.zeros(unsigned.shape, bool)
    more[:, :-1] = np.cumsum(unsigned[:, :0:-1] > 0, axis=1)[:, ::-1] > 0
    used = np.ones(unsigned.shape, bool)
    used[:, 1:] = more[:, :-1]
    return (unsigned & np.uint64(127)).astype(np.uint8) | (more * np.uint8(128)), used


def constant(data: bytes, rows: int) -> Rows:
    """The same bytes in every row."""
    return np.tile(np.frombuffer(data, np.uint8), (rows, 1)), np.ones((rows, len(data)), bool)


def join(*parts: Rows) -> Rows:
    """Put columns side by side."""
    return np.hstack([p[0] for p in parts]), np.hstack([p[1] for p in parts])


def message(tag: int, *parts: Rows) -> Rows:
    """Wrap columns as a field with a length."""
    body = join(*parts)
    length = varint(body[1].sum(axis=1))
    return join(constant(bytes([tag]), len(body[0])), length, body)


def only(rows: Rows, where: NDArray[np.bool_]) -> Rows:
    """Leave this column out of the other rows."""
    return rows[0], rows[1] & where[:, None]


def number(n: int) -> bytes:
    """Encode one number."""
    data, used = varint(np.array([n], np.int64))
    return data[used].tobytes()


def text(tag: int, data: bytes) -> bytes:
    """Encode one field with a length."""
    return bytes([tag]) + number(len(data)) + data


@dataclass
class Plane:
    """One plane under construction: what is named is numbered as it comes."""

    name: str
    lines: list[bytes] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)
    facts: bytes = b""

    def event(self, name: str) -> int:
        """Return the number of an event's name."""
        return self.events.setdefault(name, len(self.events) + 1)

    def key(self, name: str) -> int:
        """Return the number of a stat's name, or of a text that stats refer to."""
        return self.stats.setdefault(name, len(self.stats) + 1)

    def declare(self, *names: str) -> None:
        """Number the names of stats before what they refer to, as XLA does."""
        for name in names:
            self.key(name)

    def stat(self, name: str, tag: int, values: Array | bytes) -> Rows:
        """Encode one stat of every row."""
        rows = 1 if isinstance(values, bytes) else len(values)
        head = constant(b"\x08" + number(self.key(name)) + bytes([tag]), rows)
        if isinstance(values, bytes):
            return message(0x22, head, constant(number(len(values)) + values, rows))
        if tag == DOUBLE:
            data = values.astype("<f8").view(np.uint8).reshape(rows, 8)
            return message(0x22, head, (data, np.ones(data.shape, bool)))
        return message(0x22, head, varint(values))

    def same(self, name: str, value: str, rows: int) -> Rows:
        """Encode one text as the stat of every row."""
        return self.stat(name, REF, np.full(rows, self.key(value)))

    def encode(self, number_: int) -> bytes:
        """Return the plane as a field of the file."""
        parts = [b"\x08" + number(number_), text(0x12, self.name.encode())]
        parts += [text(0x1A, line) for line in self.lines]
        for tag, table in ((0x22, self.events), (0x2A, self.stats)):
            for name, key in table.items():
                entry = b"\x08" + number(key) + text(0x12, name.encode())
                parts.append(text(tag, b"\x08" + number(key) + text(0x12, entry)))
        return text(0x0A, b"".join([*parts, self.facts]))


def line(key: int, name: str, events: bytes) -> bytes:
    """Return one line: all begin with the profile."""
    head = b"\x08" + number(key) + text(0x12, name.encode()) + b"\x18" + number(EPOCH_NS)
    return head + events + b"\x50" + number(key) + text(0x5A, name.encode())


def events(name: Array, start: Array, duration: Array, *stats: Rows) -> bytes:
    """Encode the events of a line, in this order; times in ps."""
    rows = len(name)
    core = (constant(b"\x08", rows), varint(name), constant(b"\x10", rows), varint(start))
    data, used = message(0x22, *core, constant(b"\x18", rows), varint(duration), *stats)
    return data[used].tobytes()

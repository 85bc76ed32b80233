"""The names of events and stats: thousands of entries of two tables."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from whyidle.monitor.core.protobuf import BYTES, VARINT, fields, signed
from whyidle.monitor.core.protobuf import varint as number_at
from whyidle.monitor.traces.xplane.cursor import Cursor
from whyidle.monitor.traces.xplane.planes import NAME, Plane

# An entry larger than this is left out.
_ENTRY: Final = 256 << 10
# What all names may take, and what each takes beside its bytes.
_MOST: Final = 32 << 20
_COST: Final = 150

# An entry of a table, as every writer writes it: its tag and length, the key, the value's id and
# name. Thousands follow each other.
_NUMBER: Final = rb"([\x80-\xff]*[\x00-\x7f])"
_ENTRY_HEAD: Final = re.compile(
    rb"([\x22\x2a])%b\x08%b\x12%b\x08%b\x12%b" % ((_NUMBER,) * 5), re.DOTALL
)


class Tables:
    """Reads names, as many as are worth their memory."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._spent = 0
        self.full = False

    def entry(self, plane: Plane, number: int, stop: int) -> None:
        """Read one entry, field by field."""
        if stop - self._cursor.position > _ENTRY:
            return
        data = self._cursor.take(stop, _ENTRY)
        key = 0
        for part, wire, value, end in fields(data, 0, len(data)):
            if (part, wire) == (1, VARINT):
                key = signed(value)
            elif (part, wire) == (2, BYTES):
                self._named(plane, number, key, data[value:end])

    def _named(self, plane: Plane, number: int, key: int, data: bytes) -> None:
        table = plane.events if number == 4 else plane.stats
        for part, wire, begin, end in fields(data, 0, len(data)):
            if (part, wire) == (2, BYTES):
                self._name(table, key, data[begin:end])
            elif (part, wire, number) == (4, BYTES, 4) and plane.shows:
                self._name(plane.shown, key, data[begin:end])

    def entries(self, plane: Plane, end: int) -> None:
        """Read the entries that lie whole in the window, as long as they are plain."""
        cursor, shows, matched = self._cursor, plane.shows, _ENTRY_HEAD.match
        data, at = cursor.data, cursor.at
        limit = min(len(data), at + end - cursor.position)
        while head := matched(data, at, limit):
            tag, length, key, size = head.group(1, 2, 3, 6)
            begin, stop = head.end(), head.end(2) + _number(length)
            named = begin + _number(size)
            if named > stop or stop > limit:
                break
            table = plane.events if tag == b"\x22" else plane.stats
            self._name(table, _number(key), data[begin:named])
            if shows and named < stop and table is plane.events:
                self._named(plane, 4, _number(key), data[named:stop])
            at = stop
        cursor.at = at

    def _name(self, table: dict[int, bytes], key: int, name: bytes) -> None:
        self.full = self._spent > _MOST
        if not self.full:
            table[key] = name[:NAME]
            self._spent += len(name) + _COST


@lru_cache(1 << 14)
def _number(data: bytes) -> int:
    """Return a number from bytes that hold it alone."""
    return data[0] if len(data) == 1 else number_at(data, 0, len(data))[0]

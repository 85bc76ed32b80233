"""The first walk through a file: its planes, their lines and the names, without a single event."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from whyidle.monitor.core.contracts.trace import CUT_OFF
from whyidle.monitor.core.protobuf import BYTES, VARINT, Damaged, Field, fields, signed, text
from whyidle.monitor.traces.stream import Stream
from whyidle.monitor.traces.xplane.cursor import Cursor
from whyidle.monitor.traces.xplane.planes import METADATA, NAME, Line, Outline, Plane, Proto
from whyidle.monitor.traces.xplane.tables import Tables

# More than any profile has: planes, those with lines, lines of all, facts of one, warnings.
_PLANES: Final = 10_000
_FILLED: Final = 2000
_LINES: Final = 100_000
_FACTS: Final = 100
_WARNINGS: Final = 100
_EVENT: Final = 0x22
# How XLA's collector of GPU events ends its warning, once for each reason.
_DROPPED: Final = re.compile(r"\b(\d{1,18}) events (?:were )?dropped\b")
_CUT: Final = f"{CUT_OFF}: what is missing is left out."


class Outliner:
    """Walks through a file once."""

    def __init__(self, stream: Stream, progress: Callable[[int], None]) -> None:
        self._stream = stream
        self._progress = progress
        self._cursor = Cursor(stream)
        self._tables = Tables(self._cursor)
        self._lines = 0
        self._filled = 0  # planes with lines
        self.outline = Outline()

    def run(self) -> Outline:
        """Read all there is, and warn of what cannot be read."""
        cursor, stop = self._cursor, 0
        try:
            for found in cursor.fields(1 << 63):
                stop = found[3]
                self._top(found)
        except Damaged:
            if cursor.near_end:
                self._warn(_CUT)
            else:
                at = f"{cursor.position:,}"
                self._warn(f"The file is damaged at byte {at}: the rest is left out.")
        else:
            if cursor.position < stop:
                self._warn(_CUT)
        if self._tables.full:
            self._warn("The file holds more names than we keep: some events are nameless.")
        return self.outline

    def _warn(self, sentence: str) -> None:
        if sentence not in self.outline.warnings and len(self.outline.warnings) < _WARNINGS:
            self.outline.warnings.append(sentence)

    def _top(self, found: Field) -> None:
        number, wire, _, stop = found
        if wire != BYTES:
            return
        if number == 1:
            self._plane(stop)
        elif number in (2, 3, 4):
            words = text(self._cursor.take(stop, NAME))
            if not all(c.isprintable() or c.isspace() for c in words):
                raise Damaged
            if number == 4:
                self.outline.hosts.append(words)
            elif words:
                self.outline.dropped += sum(int(n) for n in _DROPPED.findall(words))
                self._warn(f"profiler {'error' if number == 2 else 'warning'}: {words}")

    def _plane(self, end: int) -> None:
        plane = Plane()
        if len(self.outline.planes) >= _PLANES:
            raise Damaged
        self.outline.planes.append(plane)
        cursor = self._cursor
        try:
            for found in cursor.fields(end):
                if found[1] == BYTES:
                    self._part(plane, found)
                if found[0] in (4, 5) and plane.name != METADATA:
                    cursor.skip_to(found[3])
                    self._tables.entries(plane, end)
        except Damaged:
            at = f"{cursor.position:,}"
            cursor.skip_to(end)
            if cursor.position >= end:
                name = f"Plane {plane.name}" if plane.name else "A plane"
                self._warn(f"{name} is damaged at byte {at}: what follows in it is left out.")

    def _part(self, plane: Plane, found: Field) -> None:
        number, _, begin, stop = found
        if number == 2:
            plane.name = text(self._cursor.take(stop, NAME))
        elif number == 3 and stop > begin:
            self._line(plane, begin, stop)
        elif number == 4 and plane.name == METADATA:
            self._module(plane, stop)
        elif number in (4, 5):
            self._tables.entry(plane, number, stop)
        elif number == 6 and len(plane.facts) < _FACTS:
            self._fact(plane, self._cursor.take(stop, NAME))

    def _line(self, plane: Plane, begin: int, end: int) -> None:
        self._lines += 1
        self._filled += not plane.lines
        if self._lines > _LINES or self._filled > _FILLED:
            raise Damaged
        line = Line(begin, end)
        plane.lines.append(line)
        cursor = self._cursor
        while cursor.position < end and cursor.have(1) and cursor.data[cursor.at] != _EVENT:
            number, wire, value, stop = next(cursor.fields(end))
            data = cursor.take(stop, NAME) if wire == BYTES else b""
            line.learn(number, wire, value, data)
            cursor.skip_to(stop)
        line.begin = cursor.position
        cursor.skip_to(end)
        self._progress(self._stream.consumed)

    def _module(self, plane: Plane, end: int) -> None:
        """Note where the proto of a module lies: it is read if the module ran."""
        cursor, name = self._cursor, ""
        for number, wire, _, stop in cursor.fields(end):
            if (number, wire) != (2, BYTES):
                continue
            for inner, kind, _, inner_stop in cursor.fields(stop):
                if (inner, kind) == (2, BYTES):
                    name = text(cursor.take(inner_stop, NAME))
                elif (inner, kind) == (5, BYTES):
                    self._stat(plane, name, inner_stop)

    def _stat(self, plane: Plane, name: str, end: int) -> None:
        for number, wire, begin, stop in self._cursor.fields(end):
            if (number, wire) == (6, BYTES) and len(plane.protos) < _PLANES:
                plane.protos.append(Proto(name, begin, stop))

    def _fact(self, plane: Plane, data: bytes) -> None:
        key = 0
        for number, wire, value, stop in fields(data, 0, len(data)):
            if (number, wire) == (1, VARINT):
                key = value
            elif wire == VARINT and number in (3, 4, 7):
                plane.facts.append((key, signed(value), number == 7))
            elif (number, wire) == (5, BYTES):
                plane.facts.append((key, text(data[value:stop]), False))

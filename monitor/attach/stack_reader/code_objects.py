"""The code objects of a job: file, function, and the lines of their instructions.

They are remembered by their address. Another one may lie there by now: each time the parts that
tell them apart are compared, and from 3.12 on a number that no other code object ever has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from whyidle.agents.trainers import phase_of
from whyidle.agents.wire import LONGEST_FILE, LONGEST_NAME
from whyidle.monitor.attach.stack_reader import layout as parts
from whyidle.monitor.attach.stack_reader import lines
from whyidle.monitor.attach.stack_reader.layout import Layout
from whyidle.monitor.attach.stack_reader.snapshot import Snapshot
from whyidle.monitor.attach.stack_reader.unreadable import Torn

# A job may make up code without end.
MOST_KNOWN = 20_000
LONGEST_TEXT, LONGEST_TABLE = 4096, 1 << 20
_WIDTHS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_WORD, _COUNT = struct.Struct("<Q"), struct.Struct("<q")
_STATE, _INT = struct.Struct("<I"), struct.Struct("<i")


class Place(NamedTuple):
    """A line of code."""

    file: str
    line: int
    function: str


class Code:
    """One code object."""

    __slots__ = (
        "_places", "_spans", "file", "fingerprint", "function", "is_users", "names", "part",
        "phase",
    )  # fmt: skip

    def __init__(
        self, fingerprint: bytes, names: tuple[int, int, bytes], file: str, function: str
    ) -> None:
        self.fingerprint = fingerprint
        # Where the names of its file and function lie, and what tells these apart.
        self.names = names
        self.file, self.function = file[-LONGEST_FILE:], function[:LONGEST_NAME]
        self.is_users = False
        # What a trainer does in it beside the steps.
        self.phase = phase_of(file, function)
        # Which part of a job runs it, where it is the loop of one.
        self.part: str | None = None
        self._spans: list[lines.Span] = []
        self._places: dict[int, Place | None] = {}

    def take_lines(self, spans: list[lines.Span]) -> None:
        """Keep where its lines are."""
        self._spans = spans

    def place(self, instruction: int) -> Place | None:
        """Return the line of an instruction; ``None``: it has not come to any yet."""
        if instruction not in self._places:
            if self._spans and instruction >= self._spans[-1][0]:
                raise Torn("it is beyond the end of its function")
            line = lines.line_at(self._spans, instruction)
            # A module begins at line 0, before its first one.
            self._places[instruction] = (
                None if line is None else Place(self.file, max(1, line), self.function)
            )
        return self._places[instruction]


class CodeObjects:
    """Reads and remembers them. ``None`` stands for code that Python itself made up."""

    def __init__(
        self,
        layout: Layout,
        code_type: int,
        is_users: Callable[[str], bool],
        part_of: Callable[[str, str], str | None] | None = None,
    ) -> None:
        self._layout = layout
        self._part_of = part_of
        self._type = struct.pack("<Q", code_type)
        self._is_users = is_users
        self._known: dict[int, Code] = {}

    def at(self, snapshot: Snapshot, address: int) -> tuple[Code | None, bool]:
        """Return the code at an address, and whether it is new to us."""
        raw = snapshot.part(address + 8, self._layout.code_lines)
        known = self._known.get(address)
        if (
            known is not None
            and known.fingerprint == raw
            and (self._layout.numbered or self._names(snapshot, *known.names[:2]) == known.names)
        ):
            return known, False
        if raw[:8] != self._type:
            raise Torn("it runs what is no code")
        if not self._word(raw, self._layout.code_filename):
            return None, False
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        found = self._known[address] = self._read(snapshot, raw)
        return found, True

    def lies(self, snapshot: Snapshot, address: int) -> bool:
        """Tell whether what was read of a code still lies there: most functions outlive a call.

        A short one ends while its code is read, whenever that is tried.
        """
        known, now = self._known[address], snapshot.later()
        raw = now.part(address + 8, self._layout.code_lines)
        return raw == known.fingerprint and self._names(now, *known.names[:2]) == known.names

    def forget(self, address: int) -> None:
        """Forget what was read of code that may have gone meanwhile."""
        self._known.pop(address, None)

    def _names(self, snapshot: Snapshot, file: int, name: int) -> tuple[int, int, bytes]:
        """Return the length and hash of both: all addresses may be those of code that was freed."""
        at = parts.TEXT_LENGTH
        return file, name, snapshot.part(file + at, 16) + snapshot.part(name + at, 16)

    def _read(self, snapshot: Snapshot, raw: bytes) -> Code:
        at = self._word(raw, self._layout.code_filename), self._word(raw, self._layout.code_name)
        file, function = (self.text(snapshot, address) for address in at)
        found = Code(raw, self._names(snapshot, *at), file, function)
        found.is_users = self._is_users(file)
        if self._part_of is not None:
            found.part = self._part_of(file, function)
        address = self._word(raw, self._layout.code_lines)
        (size,) = _COUNT.unpack(snapshot.part(address + parts.BYTES_SIZE, 8))
        if not 0 <= size <= LONGEST_TABLE:
            raise Torn(f"its lines take {size} bytes")
        table = snapshot.part(address + parts.BYTES_DATA, size)
        (first,) = _INT.unpack_from(raw, self._layout.code_first_line - 8)
        try:
            found.take_lines(lines.spans(self._layout.lines, table, first))
        except IndexError:
            raise Torn("its table of lines is cut off") from None
        return found

    def _word(self, raw: bytes, at: int) -> int:
        value: int = _WORD.unpack_from(raw, at - 8)[0]
        return value

    def text(self, snapshot: Snapshot, address: int) -> str:
        """Return a text, or the beginning of one that is too long to be a name."""
        layout = self._layout
        (length,) = _COUNT.unpack(snapshot.part(address + parts.TEXT_LENGTH, 8))
        (state,) = _STATE.unpack(snapshot.part(address + parts.TEXT_STATE, 4))
        is_ascii = state >> parts.TEXT_ASCII & 1
        is_compact = state >> parts.TEXT_COMPACT & 1
        width = state >> parts.TEXT_KIND & 7
        if width not in _WIDTHS or not is_compact or not 0 < length < 1 << 30:
            raise Torn("a name is no text")
        start = address + (layout.text_ascii if is_ascii else layout.text_compact)
        raw = snapshot.part(start, width * min(length, LONGEST_TEXT))
        try:
            found = raw.decode("ascii" if is_ascii else _WIDTHS[width], "surrogatepass")
        except UnicodeDecodeError:
            raise Torn("a name is no text") from None
        # Half of a surrogate pair can be a name, and can be in no JSON.
        return found.encode("utf-8", "replace").decode()

"""The code objects of a job: file, function, and the lines of their instructions.

They are remembered by their address. Another one may lie there by now: each time the parts that
tell them apart are compared, and from 3.12 on a number that no other code object ever has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from whyidle.monitor.attach.stack_reader import layout as parts
from whyidle.monitor.attach.stack_reader import lines
from whyidle.monitor.attach.stack_reader.layout import Layout
from whyidle.monitor.attach.stack_reader.snapshot import Snapshot
from whyidle.monitor.attach.stack_reader.unreadable import Torn

# A job may make up code without end.
MOST_KNOWN = 20_000
LONGEST_TEXT, LONGEST_TABLE = 4096, 1 << 20
_WIDTHS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_COUNT, _STATE, _INT = struct.Struct("<q"), struct.Struct("<I"), struct.Struct("<i")


class Code:
    """One code object."""

    __slots__ = ("_found", "_spans", "file", "fingerprint", "function", "is_users")

    def __init__(self, fingerprint: bytes, file: str, function: str, *, is_users: bool) -> None:
        self.fingerprint = fingerprint
        self.file, self.function, self.is_users = file, function, is_users
        self._spans: list[lines.Span] = []
        self._found: dict[int, int | None] = {}

    def take_lines(self, spans: list[lines.Span]) -> None:
        """Keep where its lines are."""
        self._spans = spans

    def line(self, instruction: int) -> int | None:
        """Return the line of an instruction; ``None``: it has not come to any yet."""
        if instruction not in self._found:
            if self._spans and instruction >= self._spans[-1][0]:
                raise Torn("it is beyond the end of its function")
            self._found[instruction] = lines.line_at(self._spans, instruction)
        return self._found[instruction]


class CodeObjects:
    """Reads and remembers them. ``None`` stands for code that Python itself made up."""

    def __init__(self, layout: Layout, code_type: int, is_users: Callable[[str], bool]) -> None:
        self._layout = layout
        self._type = struct.pack("<Q", code_type)
        self._is_users = is_users
        self._known: dict[int, Code] = {}

    def at(self, snapshot: Snapshot, address: int) -> tuple[Code | None, bool]:
        """Return the code at an address, and whether it is new to us."""
        raw = snapshot.part(address + 8, self._layout.code_lines)
        if raw[:8] != self._type:
            raise Torn("it runs what is no code")
        filename, name = self._word(raw, "code_filename"), self._word(raw, "code_name")
        if not filename:
            return None, False
        if not self._layout.numbered:
            # Length and hash of both names: all addresses may be those of code that was freed.
            raw += snapshot.part(filename + parts.TEXT_LENGTH, 16)
            raw += snapshot.part(name + parts.TEXT_LENGTH, 16)
        known = self._known.get(address)
        if known is not None and known.fingerprint == raw:
            return known, False
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        found = self._known[address] = self._read(snapshot, raw, filename, name)
        return found, True

    def forget(self, address: int) -> None:
        """Forget what was read of code that may have gone meanwhile."""
        self._known.pop(address, None)

    def _read(self, snapshot: Snapshot, raw: bytes, filename: int, name: int) -> Code:
        file = self.text(snapshot, filename)
        found = Code(raw, file, self.text(snapshot, name), is_users=self._is_users(file))
        address = self._word(raw, "code_lines")
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

    def _word(self, raw: bytes, part: str) -> int:
        value: int = struct.unpack_from("<Q", raw, getattr(self._layout, part) - 8)[0]
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

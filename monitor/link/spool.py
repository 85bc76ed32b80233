"""Reads the spool that an agent appends to: whole lines only, a bounded piece at a time."""

from __future__ import annotations

import os

from whyidle.agents import wire
from whyidle.monitor.link.records import Damaged, Record, decode

PIECE = 1 << 20
MOST_LINES = 5000
LONGEST_LINE = 1 << 16


class Spool:
    """One open spool; ``offset`` is where the first unread line begins."""

    def __init__(self, handle: int) -> None:
        self.offset = 0
        self.damaged = 0
        self.epoch: int | None = None
        self.handle = handle
        self._skipping = False
        if self.size() > wire.SPOOL_TRIM:
            # Most of it is from before our time. Reading begins somewhere inside a line.
            self._jump()

    def size(self) -> int:
        """Return the bytes that the file has now."""
        return os.fstat(self.handle).st_size

    def begin_anew(self, epoch: int) -> None:
        """Begin again where the agent has emptied the spool since: it counts that up."""
        if self.epoch is not None and epoch != self.epoch:
            self.offset, self._skipping = 0, False
        self.epoch = epoch

    def read(self) -> list[Record]:
        """Return the records of the next lines; empty when no whole line is left."""
        size = self.size()
        if size - self.offset > wire.SPOOL_CAP:
            # More than an agent ever keeps: we do not wait for the writer.
            self.damaged += 1
            self._jump()
        try:
            piece = os.pread(self.handle, PIECE, self.offset)
        except OSError:
            return []
        return self._take(piece)

    def finish(self) -> int:
        """Return where it ends; read from the start if it was emptied just before the end."""
        size = self.size()
        if size < self.offset:
            self.offset, self._skipping = 0, False
        return size

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.handle)

    def _jump(self) -> None:
        self.offset = max(0, self.size() - PIECE // 4)
        self._skipping = True

    def _take(self, piece: bytes) -> list[Record]:
        *lines, rest = piece.split(b"\n", MOST_LINES)
        if not lines and len(rest) > LONGEST_LINE:
            # A line without an end: skip it.
            self.damaged += not self._skipping
            self._skipping, rest = True, b""
        self.offset += len(piece) - len(rest)
        if lines and self._skipping:
            self._skipping = False
            del lines[0]
        found: list[Record] = []
        for line in lines:
            self._decode(line, found)
        return found

    def _decode(self, line: bytes, found: list[Record]) -> None:
        if len(line) > LONGEST_LINE:
            self.damaged += 1
            return
        try:
            record = decode(line)
        except Damaged:
            self.damaged += 1
            return
        if record is not None:
            found.append(record)

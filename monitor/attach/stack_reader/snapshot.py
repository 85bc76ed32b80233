"""The job's memory as it was while one sample was taken: no page of it is read twice."""

from __future__ import annotations

import struct

from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.stack_reader.unreadable import Torn

PAGE = 4096
# A page costs as much as a word: a sample that needs more of them makes no sense.
MOST_READS = 1000
_TOP = 1 << 47
_WORD = struct.Struct("<Q")


class Snapshot:
    """What was read so far, by address. An address that cannot be is ``Torn``."""

    def __init__(self, memory: Memory, chunk: bytes = b"", chunk_start: int = 0) -> None:
        self._memory = memory
        self._pages: dict[int, bytes] = {}
        # A copy of the part of Python's own stack in use, made in one call.
        self._chunk, self._chunk_start = chunk, chunk_start
        self._reads = 0

    def find(self, address: int, size: int) -> tuple[bytes, int]:
        """Return the bytes around an address, and where in them it is."""
        at = address - self._chunk_start
        if at >= 0 and at + size <= len(self._chunk):
            return self._chunk, at
        at = address % PAGE
        if at + size > PAGE:
            return self._read(address, size), 0
        page = self._pages.get(address - at)
        if page is None:
            page = self._pages[address - at] = self._read(address - at, PAGE)
        return page, at

    def part(self, address: int, size: int) -> bytes:
        """Return so many bytes."""
        found, at = self.find(address, size)
        return found[at : at + size]

    def anew(self, address: int, size: int) -> bytes:
        """Return so many bytes as they are by now."""
        return self._read(address, size)

    def later(self) -> Snapshot:
        """Return one of now."""
        return Snapshot(self._memory)

    def word(self, address: int) -> int:
        """Return a word of 64 bits."""
        value: int = _WORD.unpack_from(*self.find(address, 8))[0]
        return value

    def _read(self, address: int, size: int) -> bytes:
        self._reads += 1
        if not PAGE <= address < _TOP or self._reads > MOST_READS:
            raise Torn(f"nothing lies at {address:#x}")
        try:
            return self._memory.read(address, size)
        except OSError:
            raise Torn(f"nothing lies at {address:#x}") from None

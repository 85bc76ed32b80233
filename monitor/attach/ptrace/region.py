"""The memory that we map in the job: one page of code, then the block and the text to run.

It is never unmapped. A thread may still be in the last instructions of its code when all that we
can see is done, and nothing shows when it is out of them. So it stays, for the next time: two
touched pages and address space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from whyidle.monitor.attach.ptrace.frame import Call
from whyidle.monitor.attach.ptrace.maps import PAGE, Mapping
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.refused import Refused
from whyidle.monitor.attach.ptrace.stubs import (
    BLOCK_BYTES,
    CALLER,
    MAGIC,
    RESTORER,
    RESTORER_CODE,
    TEXT,
    Block,
    unpack,
)

SOURCE_ROOM = 256 << 10
# The text begins here in the writable part.
SOURCE = 256
_MMAP = 9
_READ, _WRITE, _EXECUTE = 1, 2, 4
# Private, of no file, at this very place or not at all.
_FLAGS = 0x02 | 0x20 | 0x100000
# C libraries have 2 MB of code. What calls itself one may be of any size.
_MOST_CODE = 16 << 20
_SYSCALL_RETURN = b"\x0f\x05\xc3"
_OTHER_RESTORER = b"\xb8\x0f\x00\x00\x00\x0f\x05"  # mov eax, 15; syscall


@dataclass(frozen=True, slots=True)
class Region:
    """Where it is."""

    start: int
    size: int

    @property
    def block(self) -> int:
        """Return the address of the block."""
        return self.start + PAGE

    @property
    def restorer(self) -> int:
        """Return the address of our own return from a signal handler."""
        return self.start + RESTORER

    @property
    def call(self) -> Call:
        """Return the call of our routine that carries out the block."""
        return Call(self.start + CALLER, (self.block,))

    def read(self, memory: Memory) -> Block:
        """Return the block as it is now."""
        return unpack(memory.read(self.block, BLOCK_BYTES))

    def fits(self, source: bytes) -> bool:
        """Tell whether a text with its end has room."""
        return SOURCE + len(source) < self.size

    def calls(self, syscall: int) -> tuple[Call, ...]:
        """Return the two calls that map it. The code comes first: it may be forbidden."""
        return (
            Call(syscall, (self.start, PAGE, _READ | _EXECUTE, _FLAGS, -1, 0), _MMAP),
            Call(syscall, (self.block, self.size, _READ | _WRITE, _FLAGS, -1, 0), _MMAP),
        )

    def is_mapped(self, maps: tuple[Mapping, ...]) -> bool:
        """Tell whether it lies there exactly as asked for, and not somebody else's."""
        wanted = {(self.start, self.block, "r-xp"), (self.block, self.block + self.size, "rw-p")}
        return wanted <= {(m.start, m.end, m.rights) for m in maps if not m.path}

    def prepare(self, memory: Memory) -> None:
        """Write the code into new memory."""
        if any(memory.read(self.block, PAGE)) or any(memory.read(self.start, PAGE)):
            raise Refused("Memory that was to be new is in use.")
        memory.write(self.start, TEXT)
        memory.write(self.block, Block(size=self.size).packed())


def room_for(source: bytes) -> int:
    """Return how long the writable part must be."""
    return (SOURCE + max(len(source) + 1, SOURCE_ROOM) + PAGE - 1) & -PAGE


def left(maps: tuple[Mapping, ...], memory: Memory) -> Iterator[Region]:
    """Find what earlier injections left."""
    for code, data in pairwise(maps):
        alike = (
            (code.rights, data.rights, code.path, data.path) == ("r-xp", "rw-p", "", "")
            and code.size == PAGE
            and code.end == data.start
            and data.size > SOURCE_ROOM
        )
        if not alike or memory.read(code.start, len(TEXT)) != TEXT:
            continue
        block = unpack(memory.read(data.start, BLOCK_BYTES))
        if block.magic == MAGIC and block.size <= data.size:
            yield Region(code.start, block.size)


@dataclass(frozen=True, slots=True)
class Found:
    """Code of the C library that the first step needs, before there is any of ours."""

    syscall: int
    restorer: int


def borrowed(maps: tuple[Mapping, ...], library: str, memory: Memory) -> Found:
    """Find `syscall; ret` and the return from a signal handler in a library's code."""
    room = _MOST_CODE
    for part in (m for m in maps if m.path == library and m.runs):
        code = memory.read(part.start, min(part.size, room))
        room -= len(code)
        syscall = code.find(_SYSCALL_RETURN)
        restorer = max(code.find(RESTORER_CODE), code.find(_OTHER_RESTORER))
        if syscall >= 0 and restorer >= 0:
            return Found(part.start + syscall, part.start + restorer)
        if not room:
            break
    raise Refused("Its C library is unknown to us.")

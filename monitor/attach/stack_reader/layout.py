"""Where the parts of CPython's structures lie, for each version that can be read.

Up to 3.12 these are offsets that a C compiler gave with the headers of the version; from 3.13 on
the interpreter carries them in a table (``pycore_debug_offsets.h``), of words of eight bytes.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

COOKIE = b"xdebugpy"
# Words of the table that are read: none after the text's parts in 3.14.
TABLE_WORDS = 81
# The parts of bytes, text and types have not moved since 3.9.
BYTES_SIZE, BYTES_DATA = 16, 32
TEXT_LENGTH, TEXT_STATE = 16, 32
# Bits of a text's state: how wide its characters are, behind what they follow, and all are ASCII.
TEXT_KIND, TEXT_COMPACT, TEXT_ASCII = 2, 5, 6
TYPE_NAME = 24
# The first word of an iterator over a list, an array, an enumeration or a number is where it is.
RANGE, GENERATOR, ZIP, NUMBER = "PyRangeIter_Type", "PyGen_Type", "PyZip_Type", "PyLong_Type"
INDEXED = ("PyEnum_Type", "PyListIter_Type", "PyTupleIter_Type", "PySeqIter_Type")
COUNTS = (RANGE, GENERATOR, ZIP, NUMBER, *INDEXED)
# Types that Python does not export are known by their name: which word of theirs counts, and which
# says by how much.
NAMED = {b"itertools.count": (0, None), b"itertools.islice": (1, 3)}
# Nothing that is read of a thread lies behind it.
THREAD_BYTES = 320
# Its conditions are what a thread waits at for the interpreter's lock.
GIL_BYTES = 208
GIL_HOLDER, GIL_LOCKED = 8, 16
# Of frames: who owns it, from which number on it is no frame of Python's.
OWNED_BY_C = 3


class Lines(enum.Enum):
    """How a code object says which instruction belongs to which line."""

    LNOTAB = "3.9"
    LINE_TABLE = "3.10"
    LOCATIONS = "3.11"


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes; ``None`` where this version has no such part."""

    lines: Lines
    interpreters_head: int
    interpreter_next: int
    threads_head: int
    thread_id: int
    # The frame, or what points to it.
    thread_frame: int
    frame_code: int
    frame_previous: int
    frame_instruction: int
    # Its variables, and behind them what it works with.
    frame_locals: int
    code_first_line: int
    code_filename: int
    code_name: int
    code_lines: int
    text_ascii: int
    text_compact: int
    thread_next: int = 8
    thread_interpreter: int = 16
    # Where a generator keeps its frame, before 3.11 what points to it.
    generator_frame: int = 16
    # What is left of a range that is walked through; ``None``: it counts up, at the first word.
    range_left: int | None = None
    # Before 3.11: the main thread's own number, instead of the kernel's.
    main_thread: int | None = None
    frame_at: int | None = None
    frame_owner: int | None = None
    thread_chunk: int | None = None
    # Where the instructions begin, in the code object itself.
    code_start: int = 0
    # Of the runtime until 3.11, later what points to it from the interpreter.
    gil: int = 0
    gil_is_pointed_to: bool = True
    # A number that no other code object ever has stands among the parts that are compared.
    numbered: bool = True

    @property
    def frame_bytes(self) -> int:
        """How much of a frame is read."""
        owner = self.frame_owner or 0
        return max(owner + 1, self.frame_instruction + 8, self.frame_code + 8)


_V39 = Layout(
    lines=Lines.LNOTAB,
    interpreters_head=32,
    interpreter_next=0,
    threads_head=8,
    main_thread=72,
    thread_id=176,
    thread_frame=24,
    frame_previous=24,
    frame_code=32,
    frame_instruction=104,
    frame_locals=360,
    code_first_line=40,
    code_filename=104,
    code_name=112,
    code_lines=120,
    text_ascii=48,
    text_compact=72,
    gil=352,
    gil_is_pointed_to=False,
    numbered=False,
)
_V311 = Layout(
    lines=Lines.LOCATIONS,
    interpreters_head=40,
    interpreter_next=0,
    threads_head=16,
    thread_id=160,
    thread_frame=56,
    thread_chunk=296,
    frame_at=8,
    frame_code=32,
    frame_previous=48,
    frame_instruction=56,
    frame_locals=72,
    frame_owner=69,
    code_first_line=72,
    code_filename=112,
    code_name=120,
    code_lines=136,
    code_start=184,
    generator_frame=80,
    text_ascii=48,
    text_compact=72,
    gil=360,
    gil_is_pointed_to=False,
    numbered=False,
)
_V312 = replace(
    _V311,
    threads_head=72,
    thread_id=144,
    thread_chunk=232,
    frame_at=0,
    frame_code=0,
    frame_previous=8,
    frame_owner=70,
    code_first_line=68,
    code_start=192,
    generator_frame=72,
    range_left=32,
    text_ascii=40,
    text_compact=56,
    gil=384,
    gil_is_pointed_to=True,
    numbered=True,
)
KNOWN = {
    (3, 9): _V39,
    (3, 10): replace(_V39, lines=Lines.LINE_TABLE, frame_instruction=96, frame_locals=352),
    (3, 11): _V311,
    (3, 12): _V312,
}


@dataclass(frozen=True, slots=True)
class _Words:
    """Where in the table of a version the groups of words begin."""

    interpreter: int
    gil: int
    thread: int
    frame: int
    code: int
    code_start: int
    text: int


_TABLES = {
    (3, 13): _Words(interpreter=8, gil=14, thread=21, frame=29, code=35, code_start=43, text=70),
    (3, 14): _Words(interpreter=8, gil=15, thread=24, frame=32, code=40, code_start=48, text=80),
}


def version_in(table: Sequence[int]) -> tuple[int, int] | None:
    """Return the version that a table is of; ``None``: this is no table."""
    if struct.pack("<Q", table[0]) != COOKIE:
        return None
    return table[1] >> 24, table[1] >> 16 & 255


def is_free_threaded(table: Sequence[int]) -> bool:
    """Tell whether this build has no lock: its frames lie elsewhere."""
    return table[2] != 0


def from_table(table: Sequence[int]) -> Layout | None:
    """Return what the table says; ``None`` for a version that is not known."""
    at = _TABLES.get(version_in(table) or (0, 0))
    if at is None:
        return None
    filename, name, _, lines, first_line = table[at.code : at.code + 5]
    following, interpreter, frame, _, number, chunk = table[at.thread : at.thread + 6]
    previous, code, instruction, variables, owner = table[at.frame : at.frame + 5]
    return Layout(
        lines=Lines.LOCATIONS,
        interpreters_head=table[5],
        interpreter_next=table[at.interpreter],
        threads_head=table[at.interpreter + 1],
        thread_next=following,
        thread_interpreter=interpreter,
        thread_id=number,
        thread_frame=frame,
        thread_chunk=chunk,
        frame_code=code,
        frame_previous=previous,
        frame_instruction=instruction,
        frame_locals=variables,
        frame_owner=owner,
        code_first_line=first_line,
        code_filename=filename,
        code_name=name,
        code_lines=lines,
        code_start=table[at.code_start],
        generator_frame=_V312.generator_frame,
        range_left=_V312.range_left,
        text_ascii=table[at.text],
        text_compact=table[at.text] + 16,
        gil=table[at.gil],
    )

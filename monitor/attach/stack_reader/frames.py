"""The frames of a thread, from the innermost out, in one snapshot."""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.stack_reader import layout as parts
from whyidle.monitor.attach.stack_reader.layout import THREAD_BYTES, Layout, Lines
from whyidle.monitor.attach.stack_reader.snapshot import PAGE, Snapshot
from whyidle.monitor.attach.stack_reader.unreadable import Ended, Torn

# Frames that are walked, from the innermost out.
MOST_FRAMES = 200
# Lowest bits of a pointer that say how it is counted.
_TAGS = 7
# Of a large piece of Python's stack so much; frames beyond it are read page by page.
MOST_OF_A_CHUNK = 64 << 10
# A call into another part of the stack moves it: tried again at once.
_MOST_MOVES = 4
# So many of the latest stacks that end in one place say that this is its end.
_MAKES_USUAL, _LATELY = 5, 8
_WORD, _INT = struct.Struct("<Q"), struct.Struct("<i")


class Frame(NamedTuple):
    """A function that is under way."""

    address: int
    code: int
    # In bytes, from the beginning of its code.
    instruction: int


class Frames:
    """Takes the frames of one thread.

    All that the job may change meanwhile is read in a row, at the addresses that were right the
    last time: between two of these calls passes a microsecond.
    """

    def __init__(self, memory: Memory, layout: Layout, thread: int) -> None:
        self._memory, self._layout, self._thread = memory, layout, thread
        # Where the pointer to the innermost frame lies, if not in the thread itself.
        self._pointer = 0
        # The newest part of Python's stack, and how much of it is in use.
        self._chunk, self._size = 0, 0
        # Where its stack ends, and where else it seemed to since that was last seen.
        self._outermost = 0
        self._elsewhere: deque[int] = deque(maxlen=_LATELY)

    def begin(self, known_by: bytes) -> tuple[Snapshot, int]:
        """Return a snapshot of the stack, and the address of its innermost frame."""
        layout = self._layout
        for _ in range(_MOST_MOVES):
            thread, pointed, chunk = self._read()
            if thread[layout.thread_id : layout.thread_id + 8] != known_by:
                raise Torn("the main thread's state is another's")
            if self._has_moved(thread):
                continue
            (frame,) = (
                _WORD.unpack(pointed) if pointed else _WORD.unpack_from(thread, layout.thread_frame)
            )
            return Snapshot(self._memory, chunk, self._chunk), frame
        raise Torn("its stack moves")

    def _read(self) -> tuple[bytes, bytes, bytes]:
        read = self._memory.read
        try:
            thread = read(self._thread, THREAD_BYTES)
        except OSError:
            raise Ended from None
        try:
            pointed = read(self._pointer, 8) if self._pointer else b""
            return thread, pointed, read(self._chunk, self._size) if self._size else b""
        except OSError:
            # They lie elsewhere by now.
            return thread, b"", b""

    def _has_moved(self, thread: bytes) -> bool:
        """Tell whether what was read did not lie there any more, and note where it lies."""
        layout = self._layout
        before = self._pointer, self._chunk
        is_short = False
        if layout.frame_at is not None:
            self._pointer = _WORD.unpack_from(thread, layout.thread_frame)[0] + layout.frame_at
        if layout.thread_chunk is not None:
            chunk, top, limit = struct.unpack_from("<3Q", thread, layout.thread_chunk)
            if chunk and not chunk <= top <= limit:
                raise Torn("its stack ends before it begins")
            used = min(limit - chunk, -(-(top - chunk) // PAGE) * PAGE, MOST_OF_A_CHUNK)
            is_short = self._size < used
            self._chunk, self._size = chunk, used
        return is_short or before != (self._pointer, self._chunk)

    def walk(self, snapshot: Snapshot, frame: int) -> Iterator[Frame]:
        """Go from a frame outwards; frames of C, and those not begun yet, are left out.

        A frame that is left forgets its caller: a stack that ends elsewhere than it usually does
        was cut off.
        """
        layout, size = self._layout, self._layout.frame_bytes
        owner = outermost = 0
        for _ in range(MOST_FRAMES):
            if not frame:
                self._check_end(outermost)
                return
            if frame & _TAGS:
                raise Torn("a frame is at no address of a frame")
            found, at = snapshot.find(frame, size)
            if layout.frame_owner is not None:
                owner = found[at + layout.frame_owner]
            if owner < parts.OWNED_BY_C:
                outermost = frame
                (code,) = _WORD.unpack_from(found, at + layout.frame_code)
                code &= ~_TAGS
                instruction = self._instruction(found, at, code)
                if instruction >= 0:
                    yield Frame(frame, code, instruction)
            (frame,) = _WORD.unpack_from(found, at + layout.frame_previous)

    def _check_end(self, outermost: int) -> None:
        if outermost == self._outermost:
            self._elsewhere.clear()
            return
        self._elsewhere.append(outermost)
        ((usual, count),) = Counter(self._elsewhere).most_common(1)
        if count >= _MAKES_USUAL:
            self._outermost = usual
        if usual != outermost or count < _MAKES_USUAL:
            raise Torn("its outer frames are missing")

    def _instruction(self, found: bytes, at: int, code: int) -> int:
        layout = self._layout
        if layout.lines is Lines.LOCATIONS:
            (address,) = _WORD.unpack_from(found, at + layout.frame_instruction)
            return int(address) - code - layout.code_start
        (last,) = _INT.unpack_from(found, at + layout.frame_instruction)
        return int(last) * (2 if layout.lines is Lines.LINE_TABLE else 1)

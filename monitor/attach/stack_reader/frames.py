"""The frames of a thread, from the innermost out, in one snapshot."""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.stack_reader import layout as parts
from whyidle.monitor.attach.stack_reader.layout import THREAD_BYTES, Layout, Lines
from whyidle.monitor.attach.stack_reader.pieces import Piece, Pieces
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
_WORD = struct.Struct("<Q")


class Frame(NamedTuple):
    """A function that is under way."""

    address: int
    code: int
    # In bytes, from the beginning of its code.
    instruction: int


class Frames:
    """Takes the frames of one thread.

    All that the job may change meanwhile is read at once, at the addresses that were right the last
    time: within a microsecond.
    """

    def __init__(self, pid: int, memory: Memory, layout: Layout, thread: int) -> None:
        self._memory, self._layout, self._thread = memory, layout, thread
        self._pieces = Pieces(pid, memory)
        self._fields = _fields(layout)
        # Where the pointer to the innermost frame lies, if not in the thread itself.
        self._pointer = 0
        # The newest piece of Python's stack, as far as it is in use.
        self._chunk: Piece = 0, 0
        # Where its stack ends, and where else it seemed to since that was last seen.
        self._outermost = 0
        self._elsewhere: deque[int] = deque(maxlen=_LATELY)

    def begin(self, known_by: bytes) -> tuple[Snapshot, int]:
        """Return a snapshot of the stack, and the address of its innermost frame."""
        layout = self._layout
        for _ in range(_MOST_MOVES):
            thread, pointed, chunk = self._read()
            if thread[layout.thread_id : layout.thread_id + 8] != known_by:
                self._alone()
                raise Torn("the main thread's state is another's")
            if self._has_moved(thread):
                continue
            (frame,) = (
                _WORD.unpack(pointed) if pointed else _WORD.unpack_from(thread, layout.thread_frame)
            )
            return Snapshot(self._memory, chunk, self._chunk[0]), frame
        raise Torn("its stack moves")

    def _read(self) -> tuple[bytes, bytes, bytes]:
        thread, pointer, chunk = (self._thread, THREAD_BYTES), (self._pointer, 8), self._chunk
        pieces = [thread, *([pointer] if self._pointer else []), *([chunk] if chunk[1] else [])]
        try:
            found = self._pieces.read(pieces)
        except OSError:
            # They lie elsewhere by now: looked for anew.
            self._pointer, self._chunk = 0, (0, 0)
            return self._alone(), b"", b""
        return found[0], found[1] if self._pointer else b"", found[-1] if chunk[1] else b""

    def _alone(self) -> bytes:
        """Read what never moves: if it is not there, the program has ended."""
        try:
            return self._memory.read(self._thread, THREAD_BYTES)
        except OSError:
            raise Ended from None

    def _has_moved(self, thread: bytes) -> bool:
        """Tell whether what was read did not lie there any more, and note where it lies."""
        layout = self._layout
        before = self._pointer, self._chunk[0]
        had = self._chunk[1]
        if layout.frame_at is not None:
            self._pointer = _WORD.unpack_from(thread, layout.thread_frame)[0] + layout.frame_at
        if layout.thread_chunk is not None:
            chunk, top, limit = struct.unpack_from("<3Q", thread, layout.thread_chunk)
            if chunk and not chunk <= top <= limit:
                raise Torn("its stack ends before it begins")
            used = min(limit - chunk, -(-(top - chunk) // PAGE) * PAGE, MOST_OF_A_CHUNK)
            self._chunk = chunk, used
        return had < self._chunk[1] or before != (self._pointer, self._chunk[0])

    def walk(self, snapshot: Snapshot, frame: int) -> Iterator[Frame]:
        """Go from a frame outwards; frames of C, and those not begun yet, are left out.

        A frame that is left forgets its caller: a stack that ends elsewhere than it usually does
        was cut off.
        """
        layout, size, outermost = self._layout, self._layout.frame_bytes, 0
        fields, begin = self._fields, layout.code_start
        # Before 3.11 a frame counts from its code's beginning, in 3.10 in units of two bytes.
        relative = layout.lines is Lines.LOCATIONS
        scale = 2 if layout.lines is Lines.LINE_TABLE else 1
        for _ in range(MOST_FRAMES):
            if not frame:
                self._check_end(outermost)
                return
            if frame & _TAGS:
                raise Torn("a frame is at no address of a frame")
            found, at = snapshot.find(frame, size)
            code, previous, instruction, owner = fields(found, at)
            if owner < parts.OWNED_BY_C:
                outermost = frame
                code &= ~_TAGS
                if (begun := instruction * scale - code * relative - begin) >= 0:
                    yield Frame(frame, code, begun)
            frame = previous

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


def _fields(layout: Layout) -> Callable[[bytes, int], tuple[int, ...]]:
    """Return what unpacks a frame's code, caller, instruction and owner."""
    code, previous, instruction = (
        *(layout.frame_code, layout.frame_previous, layout.frame_instruction),
    )
    if layout.frame_owner is None:
        between = instruction - code - 8
        old = struct.Struct(f"<{previous}xQQ{between}xi")

        def swapped(raw: bytes, at: int) -> tuple[int, ...]:
            back, runs, last = old.unpack_from(raw, at)
            return runs, back, last, 0

        return swapped
    gaps = previous - code - 8, instruction - previous - 8, layout.frame_owner - instruction - 8
    return struct.Struct("<{}xQ{}xQ{}xQ{}xB".format(code, *gaps)).unpack_from

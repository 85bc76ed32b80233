"""Samples of the main thread's stack: the innermost line, and the user's own lines above it.

No frame is kept after a sample: a frame keeps its locals alive, and a tensor of the user's kept a
moment too long is memory that the job lacks.
"""

from __future__ import annotations

import sys

from .code_owner import CodeOwner
from .wire import LONGEST_FILE, LONGEST_NAME, MOST_PLACES, STACK_DEPTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    Line = tuple[str, int, str]

# Frames that are walked, from the innermost out.
MOST_FRAMES = 200


class StackSampler:
    """Counts the stacks of one thread since the last record."""

    def __init__(self, ident: int, now: int) -> None:
        self._ident = ident
        self._owner = CodeOwner()
        self._begin(now)

    def sample(self, _now: int) -> None:
        """Take one sample."""
        frames = sys._current_frames()
        # Our own thread is not the job's.
        self.threads = len(frames) - 1
        frame = frames.get(self._ident)
        # Let go of the other threads' frames at once.
        del frames
        if frame is None:
            return
        stack = self._walk(frame)
        del frame
        self._samples += 1
        if stack in self._counts or len(self._counts) < MOST_PLACES:
            self._counts[stack] = self._counts.get(stack, 0) + 1

    def record(self, now: int) -> list[Any] | None:
        """Return the record of the samples since the last one; ``None`` when there are none."""
        found = None
        if self._samples:
            stacks = [[n, line[0], list(line[1:])] for line, n in self._counts.items()]
            found = ["stacks", now, now - self._began, self._samples, stacks]
        self._begin(now)
        return found

    def _begin(self, now: int) -> None:
        self._counts: dict[tuple[Line, ...], int] = {}
        self._samples = 0
        self._began = now
        self.threads = 0

    def _walk(self, frame: FrameType) -> tuple[Line, ...]:
        stack = [_line(frame)]
        at: FrameType | None = frame
        for _ in range(MOST_FRAMES):
            if at is None or len(stack) > STACK_DEPTH:
                break
            if self._owner.is_users(at.f_code.co_filename):
                stack.append(_line(at))
            at = at.f_back
        return tuple(stack)


def _line(frame: FrameType) -> Line:
    code = frame.f_code
    # A frame that is just beginning or ending may have no line.
    return code.co_filename[-LONGEST_FILE:], frame.f_lineno or 0, code.co_name[:LONGEST_NAME]

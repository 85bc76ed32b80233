"""Samples of the main thread's stack: the innermost line, what the user called, the user's lines.

Each says whether the thread waited. A thread that wants Python's lock does not: reading the state
lets go of the lock, and a thread that sleeps for it is woken first.

No frame is kept after a sample: a frame keeps its locals alive, and a tensor of the user's kept a
moment too long is memory that the job lacks.
"""

from __future__ import annotations

import os

from .code_owner import CodeOwner
from .fds import Descriptor
from .main_thread import current_frames, kernel_id
from .trainers import phase_of
from .wire import LONGEST_FILE, LONGEST_NAME, MOST_PLACES, PACKAGE, STACK_DEPTH, WAITERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from .hooks import Hooks

    Line = tuple[str, int, str]
    # The innermost line, what the user called, and the user's own lines from the innermost out;
    # and what the thread does beside its steps.
    Stack = tuple[Line, Line | None, tuple[Line, ...], str | None]

# Frames that are walked, from the innermost out.
MOST_FRAMES = 200
# The files of this package, as the job knows them.
OURS = f"<{PACKAGE}"
# Of a thread's state the kernel says no more before it.
_STATE_BYTES = 64


class StackSampler:
    """Counts the stacks of one thread since the last record."""

    def __init__(self, ident: int, now: int, phase: Callable[[], str | None] | None = None) -> None:
        self._ident = ident
        self._phase = phase
        self._owner = CodeOwner()
        self._state: Descriptor | None = None
        self._begin(now)

    def open(self, hooks: Hooks) -> None:
        """Keep the thread's state at hand: opened for each sample, it would come too late."""
        if self._ident not in current_frames():
            # To ask for the number of a thread that has ended ends the job.
            return
        try:
            number = os.open(
                f"/proc/self/task/{kernel_id(self._ident)}/stat", os.O_RDONLY | os.O_CLOEXEC
            )
        except OSError:
            return
        self._state = Descriptor(number)
        hooks.add(self._state.close)

    def sample(self, _now: int) -> None:
        """Take one sample."""
        frames = current_frames()
        # Our own thread is not the job's.
        threads = len(frames) - 1
        frame = frames.get(self._ident)
        # What is in a call of ours is in the line that made it.
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        # Let go of the other threads' frames at once.
        del frames
        if frame is None:
            return
        self.threads = threads
        stack = self._walk(frame)
        del frame
        # What the job itself says goes before what its trainer does.
        if self._phase is not None and (phase := self._phase()) is not None:
            stack = (*stack[:3], phase)
        waits = self._waits()
        self._samples += 1
        counts = self._counts.get(stack)
        if counts is None and len(self._counts) < MOST_PLACES:
            counts = self._counts[stack] = [0, 0, 0]
        if counts is not None:
            counts[0] += 1
            counts[1] += waits is not None
            counts[2] += bool(waits)

    def record(self, now: int) -> list[Any] | None:
        """Return the record of the samples since the last one; ``None`` when there are none."""
        if self._state is not None and not self._state.is_ours():
            self._state = None
        found = None
        if self._samples:
            stacks = [
                [n, leaf, list(users), called, known, waited, *((0, 0, phase) if phase else ())]
                for (leaf, called, users, phase), (n, known, waited) in self._counts.items()
            ]
            found = ["stacks", now, now - self._began, self._samples, stacks]
        self._begin(now)
        return found

    def _begin(self, now: int) -> None:
        self._counts: dict[Stack, list[int]] = {}
        self._samples = 0
        self._began = now
        self.threads = 0

    def _walk(self, frame: FrameType) -> Stack:
        leaf = called = _line(frame)
        is_waiter = frame.f_code.co_filename.endswith(WAITERS)
        users: list[Line] = []
        at: FrameType | None = frame
        phase = None
        for _ in range(MOST_FRAMES):
            if at is None or len(users) == STACK_DEPTH:
                break
            if self._owner.is_users(at.f_code.co_filename):
                users.append(_line(at))
            else:
                # Of what is within it the outermost holds.
                phase = phase_of(at.f_code.co_filename, at.f_code.co_name) or phase
                if not users:
                    called = _line(at)
                    if is_waiter and not called[0].endswith(WAITERS):
                        leaf, is_waiter = called, False
            at = at.f_back
        is_users = bool(users) and users[0] == leaf
        return leaf, None if is_users else called, tuple(users), phase

    def _waits(self) -> bool | None:
        """Tell whether the thread sleeps, for anything but Python's lock; ``None``: not known."""
        if self._state is None:
            return None
        try:
            text = os.pread(self._state.number, _STATE_BYTES, 0)
        except OSError:
            return None
        # Its name stands before it, and may hold anything.
        letter = text.rpartition(b") ")[2][:1]
        return None if not letter else letter != b"R"


def _line(frame: FrameType) -> Line:
    code = frame.f_code
    # A frame that is just beginning or ending may have no line.
    return code.co_filename[-LONGEST_FILE:], frame.f_lineno or 0, code.co_name[:LONGEST_NAME]

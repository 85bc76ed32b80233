"""Samples of the stacks of one job's threads, read from outside.

Nothing stops, and nothing in the job changes: its memory is only read. So the job goes on
meanwhile, and now and then what was read does not fit together. It is read again, a few times;
then the sample is dropped, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from whyidle.agents.wire import PHASE_BYTES, STACK_DEPTH, WAITERS
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.stack_reader import opening, thread_state
from whyidle.monitor.attach.stack_reader.code_objects import Code, CodeObjects, Place
from whyidle.monitor.attach.stack_reader.frames import Frame, Frames
from whyidle.monitor.attach.stack_reader.layout import GIL_BYTES, GIL_HOLDER
from whyidle.monitor.attach.stack_reader.loop_counters import Count, Loop, LoopCounters
from whyidle.monitor.attach.stack_reader.other_threads import OtherThreads
from whyidle.monitor.attach.stack_reader.snapshot import Snapshot
from whyidle.monitor.attach.stack_reader.thread_state import ThreadState
from whyidle.monitor.attach.stack_reader.unreadable import Ended, Torn, Unreadable
from whyidle.monitor.processes.target import Target

# A stack that changes while it is read is read again at once: left out, such code would be seen
# less often than it runs.
MOST_TRIES = 8
# Threads that held the lock, and whose stacks are known.
_MOST_HOLDERS = 16
# Of a bytearray, in every Python up to 3.14: its size; then its room, its memory, and where in that
# it begins.
_TEXT_SIZE = 16
_Chain: TypeAlias = tuple[Place, Place | None, tuple[Place, ...]]


class Stack(NamedTuple):
    """One sample: the innermost line, what the user's line called, and the user's own lines."""

    leaf: Place
    called: Place | None
    users: tuple[Place, ...]
    # Whether the thread waited, for anything but Python's lock; ``None``: not known.
    waits: bool | None
    # Whether it waited for that, and where the thread was that had it; ``None``: not seen.
    wants_lock: bool = False
    holder: _Chain | None = None
    # Whether it did so for a disk, and what it read from.
    blocked: bool = False
    file: str | None = None
    # What a trainer of a library does beside its steps.
    phase: str | None = None
    # Which part of a job has its loop on the stack.
    part: str | None = None


class StackReader:
    """Opens one process or raises ``Unreadable``; each call of ``sample`` takes one sample."""

    def __init__(
        self,
        target: Target,
        is_users: Callable[[str], bool],
        part_of: Callable[[str, str], str | None] | None = None,
    ) -> None:
        self.taken = self.torn = self.tried_again = 0
        try:
            self._memory = Memory(target.pid, root=target.fs.root)
        except OSError as error:
            raise Unreadable(
                f"The memory of process {target.pid} may not be read: {error.strerror}.",
                f'sudo "$(command -v monitor)" attach {target.pid} --observe',
            ) from None
        try:
            found = self._opened = opening.find(target, self._memory)
            lock = range(found.gil, found.gil + GIL_BYTES)
            self._state = ThreadState(target.fs.root, target.pid, lock)
        except OSError as error:
            self._memory.close()
            raise Unreadable(f"Process {target.pid} has ended ({error.strerror}).") from None
        except Unreadable:
            self._memory.close()
            raise
        self._pid = target.pid
        self._frames = Frames(target.pid, self._memory, found.layout, found.thread)
        self._holders: dict[int, Frames] = {}
        self._others = OtherThreads(target, self._memory, found)
        self._codes = CodeObjects(found.layout, found.code_type, is_users, part_of)
        self._loops = LoopCounters(found, self._codes)

    def close(self) -> None:
        """Let go of the process."""
        self._state.close()
        self._others.close()
        self._memory.close()

    def sample(self) -> Stack | None:
        """Take one sample; ``None``: it was torn, or the thread runs no Python, or is stopped."""
        for _ in range(MOST_TRIES):
            letter = self._state.letter()
            if letter in thread_state.STOPPED and letter:
                return None
            try:
                found = self._sampled(self._frames, self._opened.is_main, self._state, letter)
            except Torn:
                self.tried_again += 1
                continue
            self.taken += found is not None
            return found
        self.torn += 1
        return None

    def sample_others(self, most: int) -> Iterator[Stack]:
        """Take one sample of each other thread that runs Python; those that are torn are left."""
        for thread in self._others.look(most):
            for _ in range(MOST_TRIES):
                letter = b"" if thread.state is None else thread.state.letter()
                try:
                    found = self._sampled(thread.frames, thread.number, thread.state, letter)
                except Torn:
                    continue
                except Ended:
                    break
                if found is not None:
                    yield found
                break

    def loops(self) -> Mapping[Loop, Count]:
        """Return how far the loops of the user's functions have come; none where it is torn."""
        try:
            snapshot, innermost = self._frames.begin(self._opened.is_main)
            mine: list[tuple[Frame, Place]] = []
            for frame in self._frames.walk(snapshot, innermost):
                code = self._code(snapshot, frame)
                place = None if code is None else code.place(frame.instruction)
                if code is not None and place is not None and code.is_users:
                    mine.append((frame, place))
            return self._loops.read(snapshot, mine)
        except Torn:
            return {}

    def phase(self, at: int) -> str | None:
        """Return the phase that the job marks: a text in the object at this address."""
        try:
            size, _, _, start = self._memory.words(at + _TEXT_SIZE, 4)
            text = self._memory.read(start, size) if size == PHASE_BYTES else b""
        except (OSError, OverflowError):
            return None
        return text.decode("ascii", "replace").rstrip() or None

    def _sampled(
        self, frames: Frames, known_by: bytes, state: ThreadState | None, letter: bytes
    ) -> Stack | None:
        sleeps = state is not None and letter not in {b"", thread_state.RUNS}
        wants_lock = sleeps and state is not None and state.wants_lock()
        # At once: the next thread may have it in a moment.
        holder = self._holder() if wants_lock and state is self._state else None
        walked = self._walk(frames, known_by)
        if walked is None:
            return None
        found, phase, part = walked
        if not letter or state is None:
            return Stack(*found, None, phase=phase, part=part)
        waits = sleeps and not wants_lock
        file = state.reads() if waits else None
        blocked = letter == thread_state.BLOCKED
        return Stack(*found, waits, wants_lock, holder, blocked, file, phase, part)

    def _holder(self) -> _Chain | None:
        """Return where the thread is that has Python's lock."""
        found, parts = self._opened, self._opened.layout
        try:
            thread, locked = self._memory.words(found.gil + GIL_HOLDER, 2)
            (interpreter,) = self._memory.words(thread + parts.thread_interpreter, 1)
            if not locked & 1 or thread == found.thread or interpreter != found.interpreter:
                return None
            number = self._memory.read(thread + parts.thread_id, 8)
            if thread not in self._holders:
                if len(self._holders) >= _MOST_HOLDERS:
                    self._holders.clear()
                self._holders[thread] = Frames(self._pid, self._memory, parts, thread)
            walked = self._walk(self._holders[thread], number)
            return None if walked is None else walked[0]
        except (OSError, OverflowError, Torn, Ended):
            # It may end, or let go of the lock, at any moment.
            return None

    def _walk(
        self, frames: Frames, known_by: bytes
    ) -> tuple[_Chain, str | None, str | None] | None:
        leaf = called = phase = part = None
        users: list[Place] = []
        snapshot, innermost = frames.begin(known_by)
        for frame in frames.walk(snapshot, innermost):
            code = self._code(snapshot, frame)
            place = None if code is None else code.place(frame.instruction)
            if code is None or place is None:
                continue
            leaf = leaf or place
            if code.is_users:
                users.append(place)
                if len(users) == STACK_DEPTH:
                    break
                continue
            # Of what is within it the outermost holds.
            phase = code.phase or phase
            part = code.part or part
            if not users:
                called, leaf = place, place if leaf.file.endswith(WAITERS) else leaf
        if leaf is None:
            if innermost:
                raise Torn("none of its functions has begun")
            return None
        # Until a line of the user's, the outermost that is not is what it called.
        its = None if users and users[0] == leaf else called or leaf
        return (leaf, its, tuple(users)), phase, part

    def _code(self, snapshot: Snapshot, frame: Frame) -> Code | None:
        code, is_new = self._codes.at(snapshot, frame.code)
        if is_new and not self._codes.lies(snapshot, frame.code):
            # It was freed before all of it was read: another may lie there.
            self._codes.forget(frame.code)
            raise Torn("its code ended while it was read")
        return code

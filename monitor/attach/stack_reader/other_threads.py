"""The threads of a job's process beside its main one: found anew each time, read like that one."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.stack_reader.frames import Frames
from whyidle.monitor.attach.stack_reader.layout import GIL_BYTES, THREAD_BYTES, Lines
from whyidle.monitor.attach.stack_reader.opening import Opened
from whyidle.monitor.attach.stack_reader.thread_state import ThreadState
from whyidle.monitor.processes.target import Target

# A thread that has ended may have left its place to another one: the list is never long for us.
MOST_LISTED = 200


@dataclass(frozen=True, slots=True)
class OtherThread:
    """One thread that is known by its place and its number."""

    frames: Frames
    # The bytes by which it is known again.
    number: bytes
    # ``None``: this Python does not say which of the kernel's threads it is.
    state: ThreadState | None


class OtherThreads:
    """Keeps what is known of each as long as it lives."""

    def __init__(self, target: Target, memory: Memory, opened: Opened) -> None:
        self._target, self._memory, self._opened = target, memory, opened
        self._known: dict[tuple[int, bytes], OtherThread] = {}

    def close(self) -> None:
        """Let go of them."""
        for thread in self._known.values():
            if thread.state is not None:
                thread.state.close()
        self._known = {}

    def look(self, most: int) -> list[OtherThread]:
        """Return the threads that there are now, the oldest first."""
        # Python lists the newest first: a thread that loads lives as long as the training.
        listed = list(self._listed())[::-1][:most]
        for gone in self._known.keys() - set(listed):
            state = self._known.pop(gone).state
            if state is not None:
                state.close()
        return [self._thread(*each) for each in listed]

    def _listed(self) -> Iterator[tuple[int, bytes]]:
        layout, opened = self._opened.layout, self._opened
        at, seen = layout.thread_id, set[int]()
        with contextlib.suppress(OSError, struct.error):
            address = self._memory.words(opened.interpreter + layout.threads_head, 1)[0]
            while address and address not in seen and len(seen) < MOST_LISTED:
                seen.add(address)
                raw = self._memory.read(address, THREAD_BYTES)
                (following,) = struct.unpack_from("<Q", raw, layout.thread_next)
                (interpreter,) = struct.unpack_from("<Q", raw, layout.thread_interpreter)
                if interpreter != opened.interpreter:
                    # It ended while the list was read.
                    return
                if raw[at : at + 8] not in {opened.is_main, bytes(8)}:
                    yield address, raw[at : at + 8]
                address = following

    def _thread(self, address: int, number: bytes) -> OtherThread:
        found = self._known.get((address, number))
        if found is None:
            frames = Frames(self._target.pid, self._memory, self._opened.layout, address)
            found = OtherThread(frames, number, self._state(number))
            self._known[address, number] = found
        return found

    def _state(self, number: bytes) -> ThreadState | None:
        # Since 3.11 it is the kernel's; in a namespace of its own a process has others than we see.
        fs, pid = self._target.fs, self._target.pid
        if self._opened.layout.lines is not Lines.LOCATIONS or self._target.own_pid != pid:
            return None
        (thread,) = struct.unpack("<Q", number)
        gil = range(self._opened.gil, self._opened.gil + GIL_BYTES)
        try:
            return ThreadState(fs.root, pid, gil, thread)
        except OSError:
            return None

"""The table in which a Python 3.14 tells debuggers where its parts lie, and the parts we use.

The layout is that of CPython's ``pycore_debug_offsets.h`` in 3.14: words of eight bytes.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

from whyidle.monitor.attach.ptrace import elf, maps
from whyidle.monitor.attach.ptrace.interpreter import LIBRARY
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.tree import is_alive

COOKIE = b"xdebugpy"
VERSION = 0x030E
WORDS = 95
# Where in the table each word stands.
VERSION_AT, FREE_THREADED_AT = 1, 2
RUNTIME_SIZE_AT, FINALIZING_AT, INTERPRETERS_HEAD_AT = 3, 4, 5
INTERPRETER_NEXT_AT, THREADS_MAIN_AT = 8, 10
# eval_breaker, support, enabled, pending_call, script_path, script_path_size
SUPPORT_AT = 89
# Bit of the eval breaker that makes a thread check its flags; the official request sets it.
PLEASE_STOP = 1 << 5
MOST_INTERPRETERS = 1000


class Unfit(Exception):  # noqa: N818  an answer, not a defect of ours
    """The interpreter is not one whose memory we understand."""


class Runtime:
    """The interpreter of one process, through its memory."""

    def __init__(self, memory: Memory, address: int) -> None:
        self._memory = memory
        words = memory.words(address, WORDS)
        if struct.pack("<Q", words[0]) != COOKIE or words[VERSION_AT] >> 16 != VERSION:
            raise Unfit("its table is not that of Python 3.14")
        if words[FREE_THREADED_AT]:
            raise Unfit("it is a free-threaded build")
        if self._word(address + words[FINALIZING_AT]):
            raise Unfit("it is about to end")
        breaker, support, enabled, pending, path, self._room = words[SUPPORT_AT:WORDS]
        head = self._word(address + words[INTERPRETERS_HEAD_AT])
        interpreter = self._first(head, words[INTERPRETER_NEXT_AT])
        thread = self._word(interpreter + words[THREADS_MAIN_AT])
        # Both are parts of the runtime itself: they are never freed while we write.
        for part in (interpreter, thread):
            if not address <= part < address + words[RUNTIME_SIZE_AT]:
                raise Unfit("its main thread is not where Python starts")
        self._enabled = interpreter + enabled
        self._breaker = thread + breaker
        self._pending = thread + support + pending
        self._path = thread + support + path

    def enabled(self) -> bool:
        """Tell whether the job allows this."""
        return self._int(self._enabled) == 1

    def pending(self) -> bool:
        """Tell whether a request is pending."""
        return self._int(self._pending) != 0

    def request(self, path: str) -> None:
        """Leave a script's path and raise the flag."""
        raw = path.encode() + b"\0"
        if len(raw) > self._room:
            raise Unfit("the script's path is too long for it")
        self._memory.write(self._path, raw)
        self._memory.write(self._pending, struct.pack("<i", 1))

    def prompt(self) -> None:
        """Make the main thread check its flags, unless it is about to anyway.

        One byte, and only over zero: writing an old bit back could make a thread wait for another
        that is no longer there.
        """
        if self._memory.read(self._breaker, 1) == b"\0":
            self._memory.write(self._breaker, bytes([PLEASE_STOP]))

    def take_back(self, path: str) -> bool:
        """Undo our request; returns whether that was in time.

        An empty path is never run, and the job lowers the flag before it copies the path: if the
        flag still stands after the path was emptied, nothing can run any more.
        """
        raw = path.encode() + b"\0"
        if self._memory.read(self._path, len(raw)) != raw:
            return not self.pending()
        self._memory.write(self._path, b"\0")
        if not self.pending():
            return False
        self._memory.write(self._pending, struct.pack("<i", 0))
        return True

    def _first(self, interpreter: int, following: int) -> int:
        """Return the oldest interpreter: newer ones stand before it."""
        for _ in range(MOST_INTERPRETERS):
            after = self._word(interpreter + following) if interpreter else 0
            if not after:
                return interpreter
            interpreter = after
        raise Unfit("its interpreters make no list")

    def _word(self, address: int) -> int:
        return self._memory.words(address, 1)[0]

    def _int(self, address: int) -> int:
        found: int = struct.unpack("<i", self._memory.read(address, 4))[0]
        return found


@contextlib.contextmanager
def runtime_of(target: Target, *, write: bool) -> Iterator[Runtime]:
    """Open the interpreter of a process; whatever fails with its memory raises ``Unfit``."""
    try:
        with Memory(target.pid, root=target.fs.root, writing=write) as memory:
            # The descriptor names this memory for good, also when the pid is reused.
            stat = target.fs.stat(target.pid)
            if stat is None or not is_alive(target.key, stat):
                raise Unfit("it has ended")
            yield Runtime(memory, _address(target, memory))
    except (OSError, OverflowError, struct.error) as error:
        raise Unfit(f"its memory is closed ({error})") from None


def _address(target: Target, memory: Memory) -> int:
    for mapping in maps.parse(target.maps or ""):
        is_python = LIBRARY.search(mapping.path) or mapping.path == target.exe
        if mapping.offset == 0 and is_python:
            with contextlib.suppress(elf.NotElf):
                found = elf.image(memory.read, mapping.start).variable("_PyRuntime")
                if found is not None:
                    return found
    raise Unfit("it does not say where its runtime lies")

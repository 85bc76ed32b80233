"""Whether a thread of a job runs, waits, or wants Python's lock, as the kernel sees it."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

# Of a thread's state the kernel says no more before it.
_BYTES = 256
# The number of the system call that waits at a word of memory.
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(platform.machine(), b"?")
RUNS, BLOCKED, STOPPED = b"R", b"D", b"Tt"
# Those that read from a descriptor, which is their first argument: read, pread64, readv, preadv,
# preadv2, recvfrom, recvmsg, getdents64.
_READS = {
    "x86_64": frozenset({b"0", b"17", b"19", b"295", b"327", b"45", b"47", b"217"}),
    "aarch64": frozenset({b"63", b"67", b"65", b"69", b"286", b"207", b"212", b"61"}),
}.get(platform.machine(), frozenset())


class ThreadState:
    """Both files stay open: a number that is used again names another thread."""

    def __init__(self, root: str, pid: int, lock: range, thread: int | None = None) -> None:
        self._lock = lock
        self._process = f"{root}/{pid}"
        self._files = contextlib.ExitStack()
        task = f"{self._process}/task/{thread or pid}"
        self._stat = self._open(f"{task}/stat")
        try:
            self._call: int | None = self._open(f"{task}/syscall")
        except OSError:
            # Some kernels lack it: who waits for the lock then waits.
            self._call = None

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def letter(self) -> bytes:
        """Return the kernel's letter for what the thread does; none: it is not known."""
        try:
            text = os.pread(self._stat, _BYTES, 0)
        except OSError:
            return b""
        # Its name stands before it, and may hold anything.
        return text.rpartition(b") ")[2][:1]

    def wants_lock(self) -> bool:
        """Tell whether a thread that sleeps waits for Python's lock: at a word inside of it."""
        if self._call is None:
            return False
        try:
            words = os.pread(self._call, _BYTES, 0).split()
            return words[:1] == [_FUTEX] and int(words[1], 16) in self._lock
        except (OSError, ValueError, IndexError):
            return False

    def reads(self) -> str | None:
        """Return what a thread that sleeps reads from, as its descriptor says; none: nothing."""
        if self._call is None:
            return None
        try:
            words = os.pread(self._call, _BYTES, 0).split()
            if words[0] not in _READS:
                return None
            return str(Path(f"{self._process}/fd/{int(words[1], 16) & 0xFFFFFFFF}").readlink())
        except (OSError, ValueError, IndexError):
            return None

    def _open(self, path: str) -> int:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._files.callback(os.close, number)
        return number

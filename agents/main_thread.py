"""Which of Python's threads is the process's first one; asked without importing ``threading``."""

from __future__ import annotations

import _thread
import os
import sys
import time


def main_thread() -> int | None:
    """Return the identity of the main thread; ``None`` when it cannot be told for certain."""
    known = getattr(_thread, "_get_main_thread_ident", None)
    if known is not None:
        return int(known())
    # A thread of before a fork could still be listed by ``threading`` and by nobody else.
    alive = list(sys._current_frames())
    found = _as_threading_knows(alive)
    if found is None and alive:
        # The interpreter lists its threads newest first.
        found = alive[-1] if _kernel_id(alive[-1]) == os.getpid() else None
    return found


def _as_threading_knows(alive: list[int]) -> int | None:
    """Ask ``threading``, which calls whoever imported it first the main thread."""
    threading = sys.modules.get("threading")
    main = getattr(threading, "_main_thread", None)
    ident = getattr(main, "ident", None)
    if not isinstance(ident, int) or ident not in alive:
        return None
    return ident if _kernel_id(ident) == os.getpid() else None


def _kernel_id(ident: int) -> int | None:
    """Return the kernel's number of a living thread: Linux keeps it in the number of its clock."""
    clock = getattr(time, "pthread_getcpuclockid", None)
    return None if clock is None else ~(clock(ident) >> 3)

"""Traces by a session of a profiler that the user's own profiling shares, under the lock of that.

A user who begins one meanwhile waits until ours has ended, and then gets theirs.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from . import forks
from .modules import loaded
from .trace_window import TraceWindow
from .tracer import Tracer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .wire import ClockPair

FIRST_NS = 50_000_000
# Mostly without Python's lock, but the user's own profiler would wait for it.
STOP_NS = 250_000_000


class SessionTracer(Tracer):
    """Holds a session and a lock, and lets go of both."""

    def __init__(self) -> None:
        super().__init__(TraceWindow(FIRST_NS, STOP_NS))
        self.session: Any = None
        self.lock: Any = None
        self.began: ClockPair | None = None

    def abort(self) -> None:
        """End what is on without a file."""
        self.session = None
        self.release()

    def forget(self) -> None:
        """In a fork's child: to end the session would wait for threads that are not there."""
        session, self.session = self.session, None
        if session is not None:
            keep_for_good(session)
        self.release()

    def release(self) -> None:
        """Let the user's own profiling go on."""
        lock, self.lock = self.lock, None
        if lock is not None:
            with suppress(RuntimeError):
                lock.release()


def keep_for_good(thing: Any) -> None:
    """Make sure that nothing ever destroys it, not even the end of the interpreter."""
    vars(sys.modules[forks.NAME]).setdefault("kept", []).append(thing)
    with suppress(Exception):
        ctypes = loaded("ctypes")
        if ctypes is not None:
            ctypes["pythonapi"].Py_IncRef(ctypes["py_object"](thing))

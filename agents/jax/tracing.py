"""Traces of JAX: a session of its profiler, under the lock that the user's own takes.

A user who calls ``jax.profiler.start_trace`` meanwhile waits until ours has ended, and then gets
theirs. Without the lock their ``stop_trace`` would fail. The end of a session works for a while
without Python's lock.
"""

from __future__ import annotations

import _thread
import sys
import time
from contextlib import suppress

from .. import forks
from ..modules import loaded, need
from ..trace_window import TraceWindow
from ..tracer import Refused, TakenWindow, Tracer
from ..wire import clock_pair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..trace_files import TraceFile
    from ..wire import ClockPair

FIRST_NS = 50_000_000
# Mostly without Python's lock, but the user's own profiler would wait for it.
STOP_NS = 250_000_000
_USED = "the job profiles itself with jax.profiler"


class JaxTracer(Tracer):
    """Takes traces of JAX."""

    framework = "jax"

    def __init__(self) -> None:
        super().__init__(TraceWindow(FIRST_NS, STOP_NS))
        self._session: Any = None
        self._lock: Any = None
        self._began: ClockPair | None = None

    def is_used(self) -> bool:
        """Tell whether JAX has devices."""
        names = loaded("jax._src.xla_bridge")
        return names is not None and bool(names.get("_backends"))

    def check(self) -> None:
        """Check that it can trace now; raises Refused and Missing, which say why not."""
        if not need("jax._src.xla_bridge", "_backends"):
            raise Refused("JAX has not used a device yet")
        need("jax._src.profiler", "_profiler", "ProfilerSession")
        need("jax._src.profiler", "_profiler", "ProfileOptions")
        if _lock_of_profiler().locked() or _user_session() is not None:
            raise Refused(_USED)
        torch = loaded("torch.autograd.profiler")
        if torch is not None and torch.get("_is_profiler_enabled"):
            raise Refused("the job profiles itself with torch.profiler")

    def start(self, _length_ns: int) -> None:
        """Begin a session under the lock."""
        self.check()
        lock = _lock_of_profiler()
        if not lock.acquire(False):
            raise Refused(_USED)
        self._lock = lock
        try:
            self._begin()
        except BaseException:
            self.abort()
            raise

    def save(self, file: TraceFile) -> TakenWindow:
        """End the session, and write what it has."""
        session, began = self._session, self._began
        if session is None or began is None:
            raise Refused("no session of JAX's profiler is on")
        ended = time.monotonic_ns()
        try:
            content: bytes = self.rest(session.stop)
        finally:
            self._session = None
            # Before the lock is released: until it is deleted it is a session.
            del session
            self._release()
        cost = time.monotonic_ns() - ended
        self.rest(lambda: file.write(content))
        return TakenWindow(began.monotonic_ns, ended, began.realtime_ns, None, cost)

    def abort(self) -> None:
        """End what is on without a file."""
        self._session = None
        self._release()

    def forget(self) -> None:
        """In a fork's child: to end the session would wait for threads that are not there."""
        session, self._session = self._session, None
        if session is not None:
            keep_for_good(session)
        self._release()

    def _begin(self) -> None:
        if _user_session() is not None:
            raise Refused(_USED)
        profiler = need("jax._src.profiler", "_profiler")
        options = profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 2
        self._began = clock_pair()
        self._session = profiler.ProfilerSession(options)

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(RuntimeError):
                lock.release()


def _lock_of_profiler() -> Any:
    lock = need("jax._src.profiler", "_profile_state", "lock")
    if type(lock) is not _thread.LockType:
        raise Refused("JAX's profiler has another kind of lock")
    return lock


def _user_session() -> Any:
    return need("jax._src.profiler", "_profile_state", "profile_session")


def keep_for_good(thing: Any) -> None:
    """Make sure that nothing ever destroys it, not even the end of the interpreter."""
    vars(sys.modules[forks.NAME]).setdefault("kept", []).append(thing)
    with suppress(Exception):
        ctypes = loaded("ctypes")
        if ctypes is not None:
            ctypes["pythonapi"].Py_IncRef(ctypes["py_object"](thing))

"""Traces of JAX: a session of its profiler, under the lock that the user's own takes.

A user who calls ``jax.profiler.start_trace`` meanwhile waits until ours has ended, and then gets
theirs. Without the lock their ``stop_trace`` would fail. The end of a session works for a while
without Python's lock.
"""

from __future__ import annotations

import _thread
import time

from ..modules import loaded, need
from ..session_tracer import SessionTracer
from ..tracer import Refused, TakenWindow
from ..wire import clock_pair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..trace_files import TraceFile

_USED = "the job profiles itself with jax.profiler"


class JaxTracer(SessionTracer):
    """Takes traces of JAX."""

    framework = "jax"

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
        self.lock = lock
        try:
            self._begin()
        except BaseException:
            self.abort()
            raise

    def save(self, file: TraceFile) -> TakenWindow:
        """End the session, and write what it has."""
        session, began = self.session, self.began
        if session is None or began is None:
            raise Refused("no session of JAX's profiler is on")
        ended = time.monotonic_ns()
        try:
            content: bytes = self.rest(session.stop)
        finally:
            self.session = None
            # Before the lock is released: until it is deleted it is a session.
            del session
            self.release()
        cost = time.monotonic_ns() - ended
        self.rest(lambda: file.write(content))
        return TakenWindow(began.monotonic_ns, ended, began.realtime_ns, None, cost)

    def _begin(self) -> None:
        if _user_session() is not None:
            raise Refused(_USED)
        profiler = need("jax._src.profiler", "_profiler")
        options = profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 2
        self.began = clock_pair()
        self.session = profiler.ProfilerSession(options)


def _lock_of_profiler() -> Any:
    lock = need("jax._src.profiler", "_profile_state", "lock")
    if type(lock) is not _thread.LockType:
        raise Refused("JAX's profiler has another kind of lock")
    return lock


def _user_session() -> Any:
    return need("jax._src.profiler", "_profile_state", "profile_session")

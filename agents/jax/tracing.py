"""Traces of JAX: a session of its profiler, under the lock that the user's own takes.

A user who calls ``jax.profiler.start_trace`` meanwhile waits until ours has ended, and then gets
theirs. Without the lock their ``stop_trace`` would fail. The end of a session works for a while
without Python's lock; on a GPU it is the main thread's.
"""

from __future__ import annotations

import _thread
import time

from ..main_thread import current_frames
from ..modules import loaded, need
from ..session_tracer import WAITS, SessionTracer
from ..tracer import Refused, TakenWindow
from ..wire import clock_pair
from .internals import clients, constants, users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..main_thread import MainThreadCall
    from ..trace_files import TraceFile

_USED = "the job profiles itself with jax.profiler"
# The platforms whose session takes CUPTI, or its like, out of the process when it ends.
GPUS = {"gpu", "cuda", "rocm"}
LATELY_NS = 10_000_000_000
# The constants of all compiled programs are part of each trace, and copied while the main thread
# stands still: of 17 MB for 50 ms, of 67 MB for 440 ms, of 268 MB for 1,320 ms on an H200.
MOST_CONSTANTS = 16_000_000


class JaxTracer(SessionTracer):
    """Takes traces of JAX."""

    framework = "jax"
    profiler = "jax._src.profiler"

    def __init__(self, main_call: MainThreadCall) -> None:
        super().__init__(main_call)
        # Whether the main thread was once seen elsewhere than in a wait.
        self._works = False

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
        if not GPUS.isdisjoint(clients()):
            self.end_on_main()
            _check_constants()
            self._check_threads(time.monotonic_ns())

    def second(self) -> None:
        """Look whether the main thread does more than wait for others."""
        if not self._works:
            self._works = self.main_module() not in {None, *WAITS}

    def _check_threads(self, now: int) -> None:
        """Refuse where another thread than the main one may launch what the GPU does."""
        main, there = self._main_call.main, frozenset(current_frames())
        self.second()
        lately = {each for each, at in [*users.items()] if now - at < LATELY_NS and each in there}
        if lately - {main}:
            raise Refused(
                "another thread than its main one computes with JAX, and the end of a trace of a "
                "GPU could then end the job"
            )
        if not self._works and main not in users:
            raise Refused(
                "its main thread waits, and which thread launches the work is not known: the end "
                "of a trace of a GPU could end the job"
            )

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
        content, window = self.take()
        self.rest(lambda: file.write(content))
        return window

    def _begin(self) -> None:
        if _user_session() is not None:
            raise Refused(_USED)
        profiler = need("jax._src.profiler", "_profiler")
        options = profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 2
        self.began = clock_pair()
        session = profiler.ProfilerSession(options)
        self.open(session, session.stop)


def _check_constants() -> None:
    """Refuse where the end of any trace, however short, would hold the job for long."""
    sizes = dict(constants)
    size = sum(sizes.values())
    if size > MOST_CONSTANTS:
        name = max(sizes, key=sizes.__getitem__)
        raise Refused(
            f"compiled programs hold arrays of {size / 1e6:.0f} MB as constants, most of it {name},"
            " which each trace would copy while the job stands still; pass them as arguments"
        )


def _lock_of_profiler() -> Any:
    lock = need("jax._src.profiler", "_profile_state", "lock")
    if type(lock) is not _thread.LockType:
        raise Refused("JAX's profiler has another kind of lock")
    return lock


def _user_session() -> Any:
    return need("jax._src.profiler", "_profile_state", "profile_session")

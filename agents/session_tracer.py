"""Traces by a session of a profiler that the user's own profiling shares, under the lock of that.

A user who begins one meanwhile waits until ours has ended, and then gets theirs.

Where the session watches an NVIDIA GPU its end takes CUPTI out of the process. While another thread
launches a CUDA graph, that ends the job: "unspecified launch failure", seen on an H100 after one to
six traces of a JAX job that ended on a thread of their own, and after none that ended while the
launching thread was elsewhere (docs/gpu.md). So there it ends on the job's main thread, between two
of its lines.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from functools import partial

from . import forks
from .main_thread import MainThreadCall, current_frames, is_ours, wake
from .modules import loaded
from .trace_window import TraceWindow
from .tracer import Refused, TakenWindow, Tracer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .wire import ClockPair

FIRST_NS = 50_000_000
# Mostly without Python's lock, but the user's own profiler would wait for it.
STOP_NS = 250_000_000
# On the main thread: how long the job may stand still.
HELD_NS = 50_000_000
# Where Python waits for a lock, it makes its calls when a signal comes, and waits on.
WAITS = {"threading", "queue"}


class SessionTracer(Tracer):
    """Holds a session and a lock, and lets go of both."""

    # Where the user's own profiling waits for the lock.
    profiler = ""

    def __init__(self, main_call: MainThreadCall) -> None:
        super().__init__(TraceWindow(FIRST_NS, STOP_NS))
        self._main_call = main_call
        self.session: _Session | None = None
        self.lock: Any = None
        self.began: ClockPair | None = None
        # Whether only the main thread may end it.
        self.on_main = False

    def end_on_main(self) -> None:
        """Let sessions end on the job's main thread; raises Refused where it is not known."""
        if self._main_call.main is None:
            raise Refused("which of its threads is the main one is not known")
        self.on_main = True
        self.window.bound_ns = HELD_NS

    def open(self, session: Any, stop: Callable[[], Any]) -> None:
        """Note a session that has begun, and what ends it."""
        self.session = _Session(session, stop)

    def finish(self) -> None:
        """Have the main thread end it, where only that may."""
        if self.on_main and self.session is not None:
            self._main_call.request(self.session.end)

    def has_ended(self) -> bool:
        """Tell whether it has; elsewhere than on the main thread it ends when it is saved."""
        return not self.on_main or self.session is None or self.session.is_over

    def hurry(self) -> None:
        """Have Python make the main thread end it now, also where that waits for a lock."""
        if self.session is not None and not self.session.is_over:
            self.finish()
            self._main_call.interrupt()
            main = self._main_call.main
            if main is not None and self.main_module() in {*WAITS, self.profiler}:
                wake(main)

    def main_module(self) -> str | None:
        """Return in which module the main thread is; ``None`` where it cannot be seen."""
        main = self._main_call.main
        frame = None if main is None else current_frames().get(main)
        here = None if frame is None else frame.f_globals.get("__name__")
        return here if isinstance(here, str) else None

    def take(self) -> tuple[Any, TakenWindow]:
        """End it, if it has not ended; return what it has, and when it was."""
        session, began = self.session, self.began
        if session is None or began is None:
            raise Refused("no session of the profiler is on")
        try:
            if not self.on_main:
                self.rest(session.end)
        finally:
            self.session = None
            self.release()
        if session.error is not None:
            raise session.error
        if not session.ended_ns:
            raise Refused("an exception of the job's own ended it")
        cost = session.ended_ns - session.asked_ns
        held = cost if self.on_main else None
        times = (began.monotonic_ns, session.asked_ns, began.realtime_ns)
        return session.content, TakenWindow(*times, held, cost)

    def abort(self) -> None:
        """End what is on without a file."""
        session = self.session
        if session is not None and self.on_main and not session.is_over:
            self._end_somehow(session)
        self.session = None
        self.release()

    def forget(self) -> None:
        """In a fork's child: to end the session would wait for threads that are not there."""
        session, self.session = self.session, None
        if session is not None:
            if self.on_main:
                self._main_call.cancel()
            keep_for_good(session)
        self.release()

    def release(self) -> None:
        """Let the user's own profiling go on."""
        lock, self.lock = self.lock, None
        _release(lock)

    def _end_somehow(self, session: _Session) -> None:
        if self._main_call.is_here():
            session.end()
        self.hurry_a_while(self._main_call.main)
        if not session.is_over:
            # Until then the user's own waits.
            lock, self.lock = self.lock, None
            if not self._main_call.leave_behind(partial(_end_late, session, lock)):
                keep_for_good(session)
                _release(lock)


class _Session:
    """One session, and what it came to; nothing in its end fails but what the job's handlers do."""

    def __init__(self, session: Any, stop: Callable[[], Any]) -> None:
        self._session: Any = session
        self._stop: Callable[[], Any] | None = stop
        self.content: Any = None
        self.error: Exception | None = None
        self.asked_ns = self.ended_ns = 0

    @property
    def is_over(self) -> bool:
        """Tell whether it has ended."""
        return self._stop is None

    def end(self) -> None:
        """End it, once."""
        stop = self._stop
        if stop is None:
            return
        self.asked_ns = time.monotonic_ns()
        try:
            self.content = stop()
            self.ended_ns = time.monotonic_ns()
        except BaseException as error:
            if not is_ours(error, __package__):
                raise
            self.error = error  # type: ignore[assignment]
        finally:
            # Until it is deleted it is a session.
            del stop
            self._stop = self._session = None


def _end_late(session: _Session, lock: Any) -> None:
    session.end()
    _release(lock)


def _release(lock: Any) -> None:
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

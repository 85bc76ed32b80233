"""The agent's one thread: started without ``threading``, so that the job never sees it there.

A fork must not find it in the middle of something: half-done work would be copied. So it holds a
lock while it works, and a thread that forks takes that lock. Python 3.12 also warns when a process
with threads forks. So the thread can also be ended, and waited for until the kernel has forgotten
it.
"""

from __future__ import annotations

import _thread
import os
import signal
import time
from contextlib import suppress

from .forks import LaterCall, WorkLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

# A fault of the thread itself must still reach the job's own handler.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
# A thread that has nothing left to do is gone in less than this; sleeping would take longer.
_SPIN_SECONDS = 1e-3
_POLL_SECONDS = 50e-6


def can_start() -> bool:
    """Tell whether threads are threads: gevent's run inside the job's own and would block it."""
    return isinstance(_thread.start_new_thread, type(len))


class Worker:
    """One run of the thread. ``work`` must check ``stop`` often."""

    __slots__ = (
        "_alarm", "_before", "_ended", "_native", "_work", "begun", "busy", "ident", "last", "stop"
    )  # fmt: skip

    def __init__(self, work: Callable[[Worker], None], before: Worker | None = None) -> None:
        self.stop = False
        self.begun = False
        self.ident = 0
        # Called when there is nothing else left to do.
        self.last: Callable[[], None] | None = None
        self._native = 0
        self._work = work
        # One that had not ended yet after it was told to stop.
        self._before = before
        self.busy: WorkLock = WorkLock() if before is None else before.busy
        self._ended = _thread.allocate_lock()
        self._alarm = _thread.allocate_lock()
        self._alarm.acquire()

    def start(self) -> None:
        """Begin; raises RuntimeError where no thread can be started."""
        self.begun = True
        start = self.ready()
        try:
            start()
        except BaseException:
            self._ended.release()
            raise

    def ready(self) -> LaterCall:
        """Return the call that starts it."""
        self._ended.acquire(False)
        return LaterCall(_thread.start_new_thread, self._run, ())

    def is_this_thread(self) -> bool:
        """Tell whether it is the calling thread."""
        return self.ident == _thread.get_ident()

    def sleep_until(self, moment: float) -> None:
        """Sleep on the monotonic clock, or until told to stop."""
        left = moment - time.monotonic()
        if left > 0 and not self.stop:
            self.rest(lambda: self._alarm.acquire(True, left))

    def rest(self, wait: Callable[[], T]) -> T:
        """Wait for something; meanwhile the process may fork."""
        self.busy.release()
        try:
            return wait()
        finally:
            self.busy.acquire()

    def wake(self) -> None:
        """End its sleep."""
        with suppress(RuntimeError):
            self._alarm.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the thread has ended and the kernel no longer counts it."""
        began = time.monotonic()
        if not self._ended.acquire(True, seconds):
            return False
        self._ended.release()
        path = f"/proc/self/task/{self._native}"
        while self._native:
            try:
                os.stat(path)
            except OSError:
                break
            spent = time.monotonic() - began
            if spent > seconds:
                break
            if spent > _SPIN_SECONDS:
                time.sleep(_POLL_SECONDS)
        return True

    def join(self) -> None:
        """Wait until the thread has nothing left to do."""
        with self._ended:
            pass

    def _run(self) -> None:
        try:
            self.begun = True
            self.ident = _thread.get_ident()
            self._native = _thread.get_native_id()
            # Signals are for the job's own threads.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
            if self._before is not None:
                self._before.join()
                self._before = None
            with self.busy:
                self._work(self)
        except BaseException:
            # Nothing that goes wrong here may be printed into the job's output.
            self.stop = True
        finally:
            self._ended.release()
            if self.last is not None:
                self.last()

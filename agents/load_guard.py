"""While the agent is loaded into a job: a fork or the exit of the job finds nothing half done.

A child that is forked while a module is being imported keeps half of that module for good. So a
fork waits until the current piece is done; and the exit of the job waits until all is given up, for
Python 3.9 and 3.10 crash when a thread begins while they exit.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import time

from . import forks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

# The longest that a fork waits for one piece and the modules that it imports, and the exit for all.
FORK_SECONDS = 2.0
EXIT_SECONDS = 1.0


class LoadGuard:
    """Registered for forks in the agent's place until it is loaded; a context for each piece."""

    def __init__(self, package: str) -> None:
        self.pid = os.getpid()
        self._package = package
        self._native = _thread.get_native_id()
        self._busy = forks.WorkLock()
        self._over = False
        self._exiting = False
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        atexit.register(self.at_exit)
        forks.register(self)

    def __enter__(self) -> None:
        self._busy.acquire()
        if self._over:
            raise SystemExit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._busy.release()

    def step_aside(self) -> None:
        """Let the agent itself register for forks."""
        forks.unregister(self)

    def end(self) -> None:
        """Let the job exit; the last thing of all."""
        self.step_aside()
        if not self._exiting:
            atexit.unregister(self.at_exit)
        self._ended.release()

    def at_exit(self) -> None:
        """Give up, and wait until the kernel has forgotten the thread."""
        self._exiting = self._over = True
        if self.pid != os.getpid() or not self._ended.acquire(True, EXIT_SECONDS):
            return
        until = time.monotonic() + EXIT_SECONDS
        while os.path.exists(f"/proc/self/task/{self._native}") and time.monotonic() < until:
            pass

    def is_going(self) -> bool:
        """Return False: it stays until the agent is here."""
        return False

    def hurry(self) -> None:
        """Do nothing: it loads as fast as it may."""

    def before_fork(self) -> None:
        """Wait until the current piece is done."""
        forks.hold(self._busy, FORK_SECONDS)

    def after_fork_in_child(self) -> None:
        """Leave no half of an agent behind."""
        self.let_go()

    def let_go(self) -> None:
        """Forget what was loaded so far; no thread of this process will load the rest."""
        self.step_aside()
        atexit.unregister(self.at_exit)
        sys.modules.pop(self._package, None)

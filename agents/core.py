"""The agent: started once in a process, gone without a trace when nobody watches any more.

It runs on one thread. What the job does to its process reaches it in three ways, each guarded so
that nothing of ours is ever raised into the job: a fork (``forks.py``), the exit of the interpreter
(``atexit``), and the descriptors that a job may close under us (``fds.py``).

Agents of other versions share a process with it through ``forks.py``: ``pid``, ``is_going``,
``hurry``, ``let_go``, ``before_fork`` and ``after_fork_in_child`` must keep their names.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import time
from contextlib import suppress

from . import forks
from .endpoint import open_endpoint
from .fds import WakePipe
from .session import Session
from .wire import PACKAGE
from .worker import Worker, can_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GRACE_SECONDS = 30.0
# The longest that a fork waits for our thread to end, where it must, and to be idle. It works for a
# millisecond at a time, but a file system may hang: then one fork waits, and the next ones do not.
FORK_SECONDS = 0.02
REST_SECONDS = 1.0
# The longest that the exit of the job waits for our thread.
EXIT_SECONDS = 1.0
# Python 3.12 warns a process with threads that a fork may hang its child.
FIRST_WARNING = 0x030C0000
# A forked child that lives shorter has no use for an agent.
CHILD_SECONDS = 1.0


def start(options: dict[str, Any]) -> None:
    """Start the agent, unless one runs in this process; never raises."""
    with suppress(BaseException):
        _start(options, None, 0.0)


def alive() -> bool:
    """Tell whether an agent runs in this process."""
    agent = forks.current()
    return agent is not None and agent.pid == os.getpid()


def _start(options: dict[str, Any], main: int | None, delay: float) -> None:
    if not can_start():
        return
    old = forks.current()
    if old is not None and old.pid != os.getpid():
        # The copy of a fork that Python did not see.
        old.let_go()
        old = None
    if old is not None and not old.is_going():
        old.hurry()
        return
    agent = Agent(options, main, delay)
    if forks.register(agent):
        # Before the thread: Python 3.9 and 3.10 crash when one begins while they exit.
        atexit.register(agent.at_exit)
        agent.begin()


class Agent:
    """The agent of this process."""

    def __init__(self, options: dict[str, Any], main: int | None, delay: float) -> None:
        self.pid = os.getpid()
        self._method = str(options.get("method", "unknown"))
        self._grace = float(options.get("grace", GRACE_SECONDS))
        self._main = main
        self._begin_at = time.monotonic() + delay
        self._wake: WakePipe | None = None
        self._session: Session | None = None
        self._worker: Worker | None = None
        self._patience = REST_SECONDS
        # Acquired once, by the thread that ends the agent.
        self._over = _thread.allocate_lock()
        self._exiting = False

    def begin(self) -> None:
        """Begin the thread, after the one before it."""
        self._tell_to_stop()
        worker = Worker(self._work, self._worker)
        self._worker = worker
        try:
            worker.start()
        except RuntimeError:
            self._detach("no thread")
            self._forget_exit()

    def is_going(self) -> bool:
        """Tell whether it is ending, and if so wait until it has: a new one may take its place."""
        if not self._over.locked():
            return False
        if self._worker is not None:
            self._worker.wait(EXIT_SECONDS)
        return True

    def hurry(self) -> None:
        """Begin now, where a forked child would have waited."""
        self._begin_at = 0.0
        if self._worker is not None:
            self._worker.wake()

    def _work(self, worker: Worker) -> None:
        reason: str | None = None
        try:
            reason = self._live(worker)
        except BaseException as error:
            reason = f"failed: {type(error).__name__}"
        if self._session is not None:
            self._session.cpu_before += time.thread_time_ns()
        if reason is not None and self.pid == os.getpid():
            # The exit of the job waits for this thread to the last: killed by the interpreter, it
            # would take the job with it where libgcc cannot be loaded.
            worker.last = self._forget_exit
            self._detach(reason)

    def _live(self, worker: Worker) -> str | None:
        """Run until told to stop (``None``), or until there is a reason to go."""
        worker.sleep_until(self._begin_at)
        if worker.stop:
            return None
        if self._session is None and not self._open():
            return "no folder"
        return None if self._session is None else self._session.loop(worker)

    def _open(self) -> bool:
        self._wake = self._wake or WakePipe()
        endpoint = open_endpoint(self._wake)
        if endpoint is None:
            return False
        self._session = Session(endpoint, self._method, self._grace, self._main)
        self._session.begin()
        return True

    def _detach(self, reason: str) -> None:
        """Undo everything, once; on the agent's own thread, or when that has ended."""
        if not self._over.acquire(False):
            return
        session = self._session
        if session is not None:
            with suppress(BaseException):
                session.say_goodbye(reason)
        self._undo()
        for name in list(sys.modules):
            if name == PACKAGE or name.startswith(f"{PACKAGE}."):
                sys.modules.pop(name, None)
        if session is not None:
            session.close()
        # Last: until now a fork must know what is to be closed.
        forks.unregister(self)

    def _undo(self) -> None:
        """Undo all that was changed in the job; the files stay."""
        if self._session is not None:
            self._session.undo()
        if self._wake is not None:
            self._wake.close()

    def at_exit(self) -> None:
        """Write the last records, and be gone before the interpreter exits."""
        self._exiting = True
        with suppress(BaseException):
            if self.pid == os.getpid() and self._stop(EXIT_SECONDS):
                self._detach("exit")

    def _forget_exit(self) -> None:
        # While the handler runs it must stay registered.
        if not self._exiting:
            with suppress(BaseException):
                atexit.unregister(self.at_exit)

    def _stop(self, seconds: float) -> bool:
        """Stop the thread; returns whether it has ended."""
        worker = self._tell_to_stop()
        return worker is None or (not worker.is_this_thread() and worker.wait(seconds))

    def _tell_to_stop(self) -> Worker | None:
        worker = self._worker
        if worker is not None:
            worker.stop = True
            worker.wake()
            if self._wake is not None:
                self._wake.call()
        return worker

    def before_fork(self) -> None:
        """Keep the thread idle; where Python would warn of it, replace it after the fork."""
        worker = self._worker
        if self.pid != os.getpid() or worker is None or worker.is_this_thread():
            return
        if _is_the_only_other_thread():
            self._stop(FORK_SECONDS)
        held = forks.hold(worker.busy, self._patience)
        self._patience = REST_SECONDS if held else 0.0
        if self._session is not None:
            self._session.before_fork()
        if self._exiting or self._over.locked():
            return
        if worker.stop:
            worker = Worker(self._work, worker)
        if not worker.begun:
            forks.run_after(worker.ready())
            self._worker = worker

    def after_fork_in_child(self) -> None:
        """Let go of the parent's agent; a child that lives for a while gets its own."""
        was_over = self._over.locked()
        self.let_go()
        if not was_over:
            options = {"method": "fork", "grace": GRACE_SECONDS}
            _start(options, _thread.get_ident(), CHILD_SECONDS)

    def let_go(self) -> None:
        """Let go of what a fork copied, but leave the files, which are the parent's."""
        self._over.acquire(False)
        self._undo()
        forks.unregister(self)
        self._forget_exit()
        if self._session is not None:
            self._session.drop()


def _is_the_only_other_thread() -> bool:
    """Tell whether Python 3.12 would warn of our thread alone when the process forks."""
    if sys.hexversion < FIRST_WARNING:
        return False
    try:
        # Two more than there are threads.
        return os.stat("/proc/self/task").st_nlink == 2 + 2
    except OSError:
        # It counts them in the same place.
        return False

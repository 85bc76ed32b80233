"""The job's main thread: which one it is, a call for it to make between two steps, and waking it.

Ticks of steps make the call; where none come, batches of a loader do, which the job also takes
between two steps. Where neither come any more, Python itself is asked to have the main thread make
it between two of the job's lines, though never while gradients are computed: a thread then has
another state, which is put away at the end.
"""

from __future__ import annotations

import _operator
import _thread
import gc
import os
import signal
import sys
import time
from _thread import get_ident
from time import monotonic_ns

from .modules import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

_NAME = "call"
# What a process knows of a signal is no larger, on any Linux; the handler comes first.
_WORDS = 64
# A call that was left behind comes again while gradients are computed: a thread that ends the
# interpreter goes on until none is left, so this is bounded.
LAST_TRIES = 1_000_000
# Python 3.11 may collect garbage while it holds a lock of the interpreter's.
COLLECTS_WHILE_LOCKED = 0x030B0000 <= sys.hexversion < 0x030C0000
_UNCOLLECTED = (gc.disable, sys._current_frames, gc.enable)


def current_frames() -> dict[int, FrameType]:
    """Return the frame of each thread; whoever calls must not keep it: it holds their locals.

    Python 3.11 makes the frames under a lock of the interpreter's. Garbage that is collected there
    may run code that lets another thread go on, which waits for that lock: a deadlock. So none is
    collected meanwhile. All is one call of C, in which no other thread goes on; and no name stands
    for the result here, for it holds this frame, too.
    """
    if not COLLECTS_WHILE_LOCKED or not gc.isenabled():
        return sys._current_frames()
    try:
        return list(map(_operator.call, _UNCOLLECTED))[1]  # type: ignore[return-value]
    except BaseException:
        # A hook of the job's refused.
        gc.enable()
        raise


def main_thread() -> int | None:
    """Return the identity of the main thread; ``None`` when it cannot be told for certain."""
    known = getattr(_thread, "_get_main_thread_ident", None)
    if known is not None:
        return int(known())
    # A thread of before a fork could still be listed by ``threading`` and by nobody else.
    alive = list(current_frames())
    found = _as_threading_knows(alive)
    if found is None and alive:
        # The interpreter lists its threads newest first.
        found = alive[-1] if kernel_id(alive[-1]) == os.getpid() else None
    return found


def _as_threading_knows(alive: list[int]) -> int | None:
    """Ask ``threading``, which calls the thread that imported it first the main thread."""
    threading = sys.modules.get("threading")
    main = getattr(threading, "_main_thread", None)
    ident = getattr(main, "ident", None)
    if not isinstance(ident, int) or ident not in alive:
        return None
    return ident if kernel_id(ident) == os.getpid() else None


def kernel_id(ident: int) -> int | None:
    """Return the kernel's number of a living thread: Linux keeps it in the number of its clock."""
    clock = getattr(time, "pthread_getcpuclockid", None)
    return None if clock is None else ~(clock(ident) >> 3)


def is_ours(error: BaseException, package: str | None) -> bool:
    """Tell a failure below a line of ours from an exception of a handler of the job's."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    ours = at is not None and at.tb_frame.f_globals.get("__package__") == package
    return isinstance(error, Exception) and ours


def _nothing() -> None:
    pass


class MainThreadCall:
    """A call for the main thread to make between two steps; one at a time."""

    def __init__(self, main: int | None) -> None:
        self.main = main
        # Ticks check whether there is something in it.
        self.pending: dict[str, Callable[[], Any]] = {}
        # Batches check whether there is something in this.
        self.pending_for_batches: dict[str, None] = {}
        self._takes_batches = False
        self._due = 0
        self._in_graph: Callable[[], int] | None = None
        self._by_python: _PendingCall | None = None

    def request(self, act: Callable[[], Any], due: int = 0) -> None:
        """Have this called once, at the first moment from ``due`` on; it must not fail.

        An exception of the job's own, from a signal, may drop it: request it until it is done.
        """
        self._in_graph = (loaded("torch._C") or {}).get("_current_graph_task_id")
        self._due = due
        self.pending[_NAME] = act
        if self._takes_batches:
            self.pending_for_batches[_NAME] = None

    def accept_batches(self) -> None:
        """Let batches make the call, too, until it is cancelled: no step has ended for long."""
        self._takes_batches = True
        if self.pending:
            self.pending_for_batches[_NAME] = None

    def cancel(self) -> None:
        """Have it not called any more."""
        self._takes_batches = False
        self.pending_for_batches.clear()
        self.pending.clear()

    def is_here(self) -> bool:
        """Tell whether this is the main thread, and computes no gradients."""
        return get_ident() == self.main and (self._in_graph is None or self._in_graph() == -1)

    def run_pending(self) -> None:
        """Make the call that is pending, if this is the place; on any thread of the job's."""
        if self.is_here() and monotonic_ns() >= self._due:
            self.pending_for_batches.clear()
            self.pending.pop(_NAME, _nothing)()

    def interrupt(self) -> None:
        """Have Python make the main thread call now; called repeatedly until it has."""
        if self.pending:
            self._by_python = self._by_python or _PendingCall(self)
            self._by_python.queue()

    def leave_behind(self, act: Callable[[], Any]) -> bool:
        """Have Python make this one call though we are gone by then; ``False`` where it cannot."""
        self.cancel()
        alone = MainThreadCall(self.main)
        alone.request(act)
        alone._by_python = _PendingCall(alone, LAST_TRIES)
        return alone._by_python.queue()


class _PendingCall:
    """A call that the interpreter makes on its main thread.

    It asks for the truth of an object of ours, all in C but for our call itself: an exception of
    the job's own, from a signal, goes on its way.
    """

    def __init__(self, main_call: MainThreadCall, tries: int = 1) -> None:
        self._main_call = main_call
        self._queued = False
        # So often it queues itself again, where nobody else does.
        self._tries = tries
        ctypes = loaded("ctypes")
        self._add: Any = None
        if ctypes is not None:
            # Function objects of our own: what the job has set for its own is its affair.
            api = ctypes["pythonapi"]
            self._is_true = ctypes["cast"](api["PyObject_IsTrue"], ctypes["c_void_p"])
            self._me = ctypes["py_object"](self)
            # It may be called when we have long gone.
            api["Py_IncRef"](self._me)
            self._add = api["Py_AddPendingCall"]
            self._add.argtypes = [ctypes["c_void_p"], ctypes["py_object"]]
            # True where it fails.
            self._add.restype = ctypes["c_bool"]

    def queue(self) -> bool:
        """Queue it, unless it is; returns whether it is."""
        if self._add is not None and not self._queued:
            self._queued = True
            if self._add(self._is_true, self._me):
                self._queued = False
        return self._queued

    def __bool__(self) -> bool:
        self._queued = False
        if self._main_call.pending:
            self._main_call.run_pending()
        self._tries -= 1
        if self._main_call.pending and self._tries > 0:
            self.queue()
        return False


def wake(main: int) -> bool:
    """Wake the main thread where it sleeps in C, as a signal does; returns whether that was tried.

    Where Python waits for a lock, it then makes its pending calls and sleeps on. The signal is one
    that nobody in the process uses. Its handler is a C function that does nothing, and stays: the
    signal may still be on its way when we have long gone.
    """
    ctypes = loaded("ctypes")
    if ctypes is None:
        return False
    number = _unused_signal(ctypes)
    if number is not None:
        signal.pthread_kill(main, number)
    return number is not None


def _unused_signal(ctypes: dict[str, Any]) -> int | None:
    """Return a signal that does nothing, made so if need be; ``None`` where all are in use."""
    lib = ctypes["CDLL"](None)
    nothing = ctypes["cast"](lib["abs"], ctypes["c_void_p"])
    install = lib["signal"]
    install.argtypes = [ctypes["c_int"], ctypes["c_void_p"]]
    install.restype = ctypes["c_void_p"]
    known = (ctypes["c_void_p"] * _WORDS)()
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if lib["sigaction"](number, None, known) != 0 or known[0] not in (None, nothing.value):
            continue
        if known[0] is None:
            install(number, nothing)
        # Else it would sleep on without making its pending calls.
        lib["siginterrupt"](number, 1)
        return number
    return None

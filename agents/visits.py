"""Moments between two steps of the job, on its main thread, for what must be done just there.

Ticks of steps ask whether something is wanted; where none come, batches of a loader do, which the
job takes between two steps, too. Where neither come any more, Python itself is asked to
let the main thread come by: between two lines of the job's, but not while gradients are computed,
where a thread wears another state that is put away at the end.
"""

from __future__ import annotations

from _thread import get_ident
from functools import partial
from time import monotonic_ns

from .modules import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NAME = "act"


def _nothing() -> None:
    pass


class Visits:
    """One thing at a time."""

    def __init__(self, main: int | None) -> None:
        self.main = main
        # Ticks look whether there is something in it.
        self.wanted: dict[str, Callable[[], Any]] = {}
        # Batches look whether there is something in this.
        self.wanted_of_batches: dict[str, None] = {}
        self._is_wide = False
        self._due = 0
        self._in_graph: Callable[[], int] | None = None
        self._by_python: _ByPython | None = None

    def ask(self, act: Callable[[], Any], due: int = 0) -> None:
        """Have this done at the next moment from then on, once; it must not fail.

        An exception of the job's own, from a signal, may take it away: ask again until it is done.
        """
        self._in_graph = (loaded("torch._C") or {}).get("_current_graph_task_id")
        self._due = due
        self.wanted[_NAME] = act
        if self._is_wide:
            self.wanted_of_batches[_NAME] = None

    def widen(self) -> None:
        """Have batches do as well, until it is forgotten: no step has ended for long."""
        self._is_wide = True
        if self.wanted:
            self.wanted_of_batches[_NAME] = None

    def forget(self) -> None:
        """Want it no more."""
        self._is_wide = False
        self.wanted_of_batches.clear()
        self.wanted.clear()

    def is_here(self) -> bool:
        """Tell whether this is the main thread, and computes no gradients."""
        return get_ident() == self.main and (self._in_graph is None or self._in_graph() == -1)

    def come(self) -> None:
        """Do what is wanted, if this is the place; on any thread of the job's."""
        if self.is_here() and monotonic_ns() >= self._due:
            self.wanted_of_batches.clear()
            self.wanted.pop(_NAME, _nothing)()

    def hurry(self) -> None:
        """Have Python send the main thread by; again and again, until it has come."""
        if self.wanted:
            self._by_python = self._by_python or _ByPython(self)
            self._by_python.ask()

    def part(self) -> None:
        """Nobody will hurry any more: Python itself does, as long as something is wanted."""
        if self._by_python is not None:
            self._by_python.stays = True


class _ByPython:
    """A call that the interpreter makes on its main thread.

    It asks for the truth of an object of ours, all in C but for the visit itself: an exception of
    the job's own, from a signal, goes on its way.
    """

    def __init__(self, visits: Visits) -> None:
        self.stays = False
        self._visits = visits
        self._queued = False
        ctypes = loaded("ctypes")
        self._add: Any = None
        if ctypes is not None:
            # Functions of our own: what the job has told its ones of their arguments is its affair.
            api = ctypes["pythonapi"]
            self._is_true = ctypes["cast"](api["PyObject_IsTrue"], ctypes["c_void_p"])
            self._me = ctypes["py_object"](self)
            # It may come when we have long gone.
            api["Py_IncRef"](self._me)
            self._add = api["Py_AddPendingCall"]
            self._add.argtypes = [ctypes["c_void_p"], ctypes["py_object"]]
            # True where it fails.
            self._add.restype = ctypes["c_bool"]
            # From Python 3.13 on, a call that is queued from within one is forgotten as soon as
            # bytecode looks for it, which follows each call: so this is asked in C, without one.
            add = partial(self._add, self._is_true, self._me)
            self._not_queued = type("NotQueued", (), {"__bool__": staticmethod(add)})()

    def ask(self) -> None:
        """Queue it, unless it is."""
        if self._add is not None and not self._queued:
            self._queued = True
            if self._add(self._is_true, self._me):
                self._queued = False

    def __bool__(self) -> bool:
        self._queued = False
        try:
            if self._visits.wanted:
                self._visits.come()
        finally:
            if self.stays and self._visits.wanted and not self._queued:
                self._queued = True
                if self._not_queued:
                    self._queued = False
        return False

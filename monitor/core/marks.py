"""The user's own marks of steps and phases; they do nothing unless an agent listens.

Training jobs import this: it must stay light, and import nothing.
"""

from __future__ import annotations

from _thread import get_ident, get_native_id
from os import getpid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Literal

    # What a loop does beside its steps; "epoch" is what lies between two of them.
    Name = Literal["validation", "checkpoint", "logging", "epoch"]

# Called in each step; an agent puts it here, and removes it again.
listener: Callable[[], object] | None = None
# What a monitor that watches has found by now; an agent puts it here, and removes it again.
told: dict[str, Any] | None = None
# What each thread does beside its steps, and in what that lies.
doing: dict[int, tuple[Name, Any]] = {}
# What the main thread does, as text: an agent reads it, and so does who samples from outside.
shown = bytearray(16)


class Step:
    """What ``step`` returns: its ``with`` shows a reader where the step is, and does nothing."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Do nothing."""


_STEP = Step()


def step() -> Step:
    """Mark a step of a training loop: called in each, alone or with ``with`` before it.

    A step lasts from one call to the next. Once it is used, no other source of steps counts. It
    costs a fraction of a microsecond while no monitor watches.
    """
    heard = listener
    if heard is not None:
        heard()
    return _STEP


class Phase:
    """A part of a training loop beside its steps."""

    __slots__ = ("_name",)

    def __init__(self, name: Name) -> None:
        self._name: Name = name

    def __enter__(self) -> None:
        """Begin it."""
        phase_began(self._name)

    def __exit__(self, *_: object) -> None:
        """End it, however it ends."""
        phase_ended()


def phase(name: Name) -> Phase:
    """Mark what a loop does beside its steps: ``with whyidle.monitor.phase("validation"): ...``."""
    return Phase(name)


def phase_began(name: Name) -> None:
    """Begin a phase on this thread, within the one that it is in."""
    me = get_ident()
    doing[me] = (name, doing.get(me))
    _show(name)


def phase_ended() -> None:
    """End the phase that this thread is in."""
    me = get_ident()
    now = doing.pop(me, None)
    outer = None if now is None else now[1]
    if outer is not None:
        doing[me] = outer
    _show("" if outer is None else outer[0])


def in_steps() -> None:
    """End all phases of this thread, also those that an exception has left open."""
    if doing and doing.pop(get_ident(), None) is not None:
        _show("")


def _show(name: str) -> None:
    # The main thread has the number of its process. Text of the same length stays in its place.
    if get_native_id() == getpid():
        shown[:] = name.encode("ascii", "replace")[: len(shown)].ljust(len(shown))

"""Passes the job's forks on to whichever agent runs.

``os.register_at_fork`` cannot be undone. So it is called once in a process for good, with callables
that only follow names in a module of our own; after the agent they lead to nothing. The module
stays in ``sys.modules``, and agents of other versions share it: its names must not change.

Python checks for signals when a function begins. One that came during a fork would be handled in
our callback, where Python only prints what the job's handler raises. So what follows a fork in the
parent runs without a line of Python, and the rest begins inside a ``try``, in generators that wait
there: what they catch is raised again when the fork is done, and the job's handler runs once more.
"""

from __future__ import annotations

import _thread
import os
import sys
from _operator import attrgetter
from itertools import cycle, repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterator
    from functools import partial
    from types import ModuleType
    from typing import Any
else:
    # All in C, and there in every job: nothing is half imported when a fork comes.
    import _signal
    from _functools import partial

NAME = "_whyidle_fork"
# The most threads that may be at the beginning of a fork at once.
MOST_AT_ONCE = 64


class Nothing:
    """Stands where nothing is to be done."""

    go = None


class WorkLock(_thread.RLock):  # type: ignore[misc]
    """Held by the agent while it works, or by a thread that forks; ``go`` releases it."""

    go = property(_thread.RLock.release)


class LaterCall(partial):  # type: ignore[type-arg]
    """A call that ``go`` makes."""

    go = property(partial.__call__)


class _Guarded(map):  # type: ignore[type-arg]
    go = property(next)


class _Mine(_thread._local):
    """What a thread does when its fork is done: release, start a thread, raise a signal again."""

    held: Any = Nothing
    then: Any = Nothing
    given: Any = Nothing


class _Nowhere:
    before = Nothing
    mine = _Mine()
    child = Nothing


class _Now:
    def __init__(self, agent: Any) -> None:
        self.mine = _Mine()
        self.before = _guarded(partial(_before, agent, self.mine), MOST_AT_ONCE)
        self.child = _guarded(agent.after_fork_in_child, 1)


def current() -> Any:
    """Return the agent of this process, or one that a fork copied; ``None`` for none."""
    found = sys.modules.get(NAME)
    return None if found is None else vars(found).get("agent")


def register(agent: Any) -> bool:
    """Make this the agent of the process; False when there is one. Of two at once, one wins."""
    holder = _holder()
    if vars(holder).setdefault("agent", agent) is not agent:
        return False
    vars(holder)["now"] = _Now(agent)
    return True


def unregister(agent: Any) -> None:
    """Make this no longer the agent of the process."""
    if current() is agent:
        names = vars(_holder())
        names["now"] = _Nowhere
        names.pop("agent", None)


def hold(busy: WorkLock, seconds: float) -> bool:
    """Acquire it until the fork of this thread is done; False when that took too long."""
    mine = _mine()
    if mine.held is busy and busy._is_owned():
        # A second try: an exception of the job's came right after the first.
        return True
    mine.held = busy
    if busy.acquire(True, seconds):
        return True
    mine.held = Nothing
    return False


def run_after(start: LaterCall) -> None:
    """Make this call when the fork of this thread is done."""
    _mine().then = start


def _mine() -> _Mine:
    found: _Mine = vars(_holder())["now"].mine
    return found


def _holder() -> ModuleType:
    found = sys.modules.get(NAME)
    if found is None:
        mine = type(sys)(NAME)
        vars(mine)["now"] = _Nowhere
        found = sys.modules.setdefault(NAME, mine)
        if found is mine:
            ends = attrgetter("now.mine.held.go", "now.mine.then.go", "now.mine.given.go")
            os.register_at_fork(
                before=partial(attrgetter("now.before.go"), mine),
                after_in_parent=partial(ends, mine),
                after_in_child=partial(attrgetter("now.child.go"), mine),
            )
    return found


def _before(agent: Any, mine: _Mine) -> None:
    mine.then = mine.given = Nothing
    agent.before_fork()


def _guarded(work: Callable[[], None], number: int) -> _Guarded:
    waiting = [_guard(work) for _ in range(number)]
    for one in waiting:
        next(one)
    # A spent one does nothing.
    return _Guarded(next, cycle(waiting), repeat(None))


def _guard(work: Callable[[], None]) -> Iterator[None]:
    while True:
        try:
            while True:
                yield
                work()
        except GeneratorExit:  # noqa: PERF203  it waits inside of it
            return
        except BaseException as error:
            _try_again(work, error)


def _try_again(work: Callable[[], None], error: BaseException) -> None:
    number = _signal_behind(error)
    try:  # noqa: SIM105  contextlib may not be there
        work()
    except BaseException:  # noqa: S110  a log would be the job's
        pass
    if number is not None:
        # Python 3.9 can only interrupt.
        give = _thread.interrupt_main if sys.version_info >= (3, 10) else _signal.raise_signal
        _mine().given = LaterCall(give, number)


def _signal_behind(error: BaseException) -> int | None:
    """Return the signal whose handler raised this inside our code."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_globals.get("__package__") == __package__:
        at = at.tb_next
    if at is None:
        # Python's own handler has no frame.
        return _signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
    code, names = at.tb_frame.f_code, at.tb_frame.f_locals
    values = [names.get(name) for name in code.co_varnames[: code.co_argcount + 1]]
    for value in [*values, *(values[-1] if values and isinstance(values[-1], tuple) else ())]:
        if isinstance(value, int) and value in _signal.valid_signals():
            return int(value)
    return None

"""The user's own profiler: it always wins, and never overlaps ours.

Two profilers at once end the process. So the few C functions that begin and end one are wrapped
where PyTorch keeps them. One that the user begins is noted first, and then ours is ended. Ours
checks for the user's, notes that it is open, and begins, all in one step of C.
"""

from __future__ import annotations

import _thread
from collections import deque
from functools import partial
from itertools import repeat
from operator import getitem
from time import monotonic_ns, sleep, time_ns
from typing import Any, NamedTuple

from ..main_thread import is_ours, wake
from ..modules import loaded, need
from .entered_blocks import EnteredBlocks, in_c
from .kineto import SILENT
from .parallel import uses_threads
from .patch import copy_names, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..hooks import Hooks
    from ..main_thread import MainThreadCall
    from .kineto import Kineto

HOME = "torch._C._autograd"
PLACES = (HOME, "torch.autograd", "torch.autograd.profiler", "torch.autograd.profiler_legacy")
BEGINS = ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy")
ENDS = ("_disable_profiler", "_disable_profiler_legacy")
# After so long, a main thread that sleeps in C is woken to end ours, ever less often.
WAKE_NS = 50_000_000
SELDOM_NS = 1_000_000_000
POLL_SECONDS = 0.002
# A thread of gloo's ends the block of a collective a moment after the main thread goes on.
LAG_SECONDS = 0.001
# So often the end waits for a block that is just being entered.
PATIENCE = 10
USED = "the job profiles itself with torch.profiler"
_call = partial.__call__
_nothing = partial(int)


class Began(NamedTuple):
    """The results of beginning ours, step by step."""

    wanted: None
    vacant: None
    opened: None
    level: int
    hushed: None
    before: int
    prepared: None
    new_level: int
    hushed_again: None
    monotonic_ns: int
    realtime_ns: int
    enabled: None
    done: int

    @property
    def took_ns(self) -> int:
        """How long the job stood still for it."""
        return self.done - self.before

    @property
    def level_before(self) -> int:
        """Kineto's level before ours, or as its first beginning set it."""
        return self.level if self.new_level == SILENT else self.new_level


class Ended(NamedTuple):
    """The results of ending ours."""

    monotonic_ns: int
    result: Any
    done: int

    @property
    def took_ns(self) -> int:
        """How long the job stood still for it."""
        return self.done - self.monotonic_ns


class Profilers:
    """Who profiles: the user, we, or nobody. Ours begins and ends on the main thread."""

    def __init__(self, main_call: MainThreadCall) -> None:
        self._main_call = main_call
        # The threads on which the user has begun one and not ended it.
        self._users: dict[int, None] = {}
        # Raises where there is one of them.
        self._vacancy = map(getitem, repeat((None,)), map(len, repeat(self._users)))
        # One thing as long as ours may begin.
        self._wish: list[None] = []
        self._length_ns = 0
        self._patience = PATIENCE
        # Removes and calls what ends ours, if ours is open.
        self._open: dict[str, partial[Any]] = {}
        closing = map(_call, map(self._open.pop, repeat("end"), repeat(_nothing)))
        self._close = partial(next, closing)
        self._begun: deque[Any] = deque()
        self._ended: deque[Any] = deque()
        # How long its end has waited for threads of the job's.
        self.lag_ns = 0
        # Why ours did not begin, or ended early.
        self.why_not: str | None = None
        # The job's own blocks that began in ours.
        self._entered = EnteredBlocks(self._open)
        # No more are wanted: entered blocks are noted only until ours has ended.
        self._is_leaving = False
        self._ours: dict[str, Callable[..., Any]] = {}
        self._theirs: dict[str, Callable[..., Any]] = {}

    def install(self, hooks: Hooks) -> None:
        """Wrap them wherever they are; raises Missing. Called again for later imports."""
        if not self._ours:
            # All are found before the first is replaced.
            self._theirs = {name: need(HOME, name) for name in (*BEGINS, *ENDS)}
            for name, theirs in self._theirs.items():
                make = partial(_beginning, self) if name in BEGINS else _ending
                self._ours[name] = make(self._users, theirs)
        for place in PLACES:
            names = loaded(place) or {}
            for name, theirs in self._theirs.items():
                if names.get(name) is theirs:
                    replace(hooks, names, name, self._ours[name])

    def is_used(self) -> bool:
        """Tell whether the user profiles, or is about to."""
        return bool(self._users) or bool(need("torch.autograd.profiler", "_is_profiler_enabled"))

    def start(self, kineto: Kineto, config: Any, activities: set[Any], length_ns: int) -> None:
        """Let ours begin between two steps of the main thread, unless the user profiles then."""
        self._begun.clear()
        self._ended.clear()
        self.why_not = None
        self.lag_ns = 0
        self._length_ns = length_ns
        self._patience = PATIENCE
        self._is_leaving = False
        self._entered.watch(self._main_call.main)
        self._main_call.cancel()
        self._wish = [None]
        theirs, clock = self._theirs, partial(monotonic_ns)
        end = [clock, partial(theirs["_disable_profiler"]), clock]
        ending = partial(self._ended.extend, map(_call, end))
        # In one step of C: no signal handler can run in between. The very first beginning may set
        # the level anew.
        begin: list[partial[Any]] = [
            partial(self._wish.pop),
            partial(next, self._vacancy),
            partial(self._open.__setitem__, "end", ending),
            kineto.ask,
            kineto.hush,
            clock,
            partial(theirs["_prepare_profiler"], config, activities),
            kineto.ask,
            kineto.hush,
            clock,
            partial(time_ns),
            partial(theirs["_enable_profiler"], config, activities),
            clock,
        ]
        self._main_call.request(partial(self._begin, begin))

    def cancel(self) -> None:
        """Let ours not begin any more."""
        self._wish.clear()
        self._main_call.cancel()
        self._is_leaving = True
        self._leave()

    def forget(self) -> None:
        """In a fork's child: stop everything."""
        self.cancel()
        self._entered.leave()

    def finish(self) -> None:
        """Let ours end between two steps of the main thread; called repeatedly until it has."""
        if self._open:
            self._main_call.request(self._come_by)

    def end_here(self) -> None:
        """End ours, on the main thread."""
        if self._open:
            if uses_threads():
                before = monotonic_ns()
                sleep(LAG_SECONDS)
                self.lag_ns = monotonic_ns() - before
            self._entered.end()
        in_c([self._close])
        self._leave()

    def is_open(self) -> bool:
        """Tell whether ours is on."""
        return bool(self._open)

    def began(self) -> Began | None:
        """Return the results of beginning ours; ``None`` if it has not begun."""
        found = tuple(self._begun)
        return Began(*found) if len(found) == len(Began._fields) else None

    def take_level(self) -> int | None:
        """Return what Kineto's level was before ours, once; ``None`` where it still is."""
        found = tuple(self._begun)
        self._begun.clear()
        if len(found) == len(Began._fields):
            return Began(*found).level_before
        before = found[Began._fields.index("level") :]
        return int(before[0]) if before else None

    def take(self) -> Ended | None:
        """Return the results of ending ours, once."""
        self._entered.leave()
        found = tuple(self._ended)
        self._ended.clear()
        return Ended(*found) if len(found) == len(Ended._fields) else None

    def give_way(self) -> None:
        """End ours, as the user is about to begin; on the user's thread."""
        if not self._open:
            return
        self.why_not = USED
        if _thread.get_ident() == self._main_call.main:
            if self._main_call.is_here():
                self.end_here()
            return
        if self._main_call.main is not None:
            self._wait_for(self._main_call.main)

    def _leave(self) -> None:
        # A block that began in ours without being noted would stay open past its end.
        if self._is_leaving and not self._open:
            self._entered.leave()

    def _come_by(self) -> None:
        """End ours, or a moment later if a block is just being entered; on the main thread."""
        if self._open and self._patience and self._entered.is_halfway():
            # It is requested again; but a block that failed to enter stays like this.
            self._patience -= 1
        else:
            self.end_here()

    def _wait_for(self, main: int) -> None:
        """Wait until the main thread has ended ours: replaced by the user's, it would never end."""
        pause, due = WAKE_NS, monotonic_ns() + WAKE_NS
        while self._open:
            self.finish()
            self._main_call.interrupt()
            if monotonic_ns() > due:
                wake(main)
                pause = min(SELDOM_NS, 2 * pause)
                due = monotonic_ns() + pause
            sleep(POLL_SECONDS)

    def _begin(self, begin: list[partial[Any]]) -> None:
        """Begin ours; on the main thread."""
        try:
            if self.is_used():
                self.why_not = USED
                return
            self._begun.extend(map(_call, begin))
        except BaseException as error:
            if len(self._begun) < len(begin):
                self._open.clear()
                failed = f"it did not begin: {type(error).__name__}: {error}"
                self.why_not = USED if self._users else failed
            if not is_ours(error, __package__):
                raise
            return
        began = self.began()
        if began is not None:
            # By itself, should the agent's thread not run in time.
            self._main_call.request(self._come_by, began.monotonic_ns + self._length_ns)


def _beginning(
    profilers: Profilers, users: dict[int, None], theirs: Callable[..., Any]
) -> Callable[..., Any]:
    def begin(*arguments: Any, **more: Any) -> Any:
        users[_thread.get_ident()] = None
        profilers.give_way()
        return theirs(*arguments, **more)

    copy_names(begin, theirs)
    return begin


def _ending(users: dict[int, None], theirs: Callable[..., Any]) -> Callable[..., Any]:
    def end(*arguments: Any, **more: Any) -> Any:
        try:
            return theirs(*arguments, **more)
        finally:
            # Ended on another thread than it began: then all have, as there is only one.
            if users.pop(_thread.get_ident(), users) is users:
                users.clear()

    copy_names(end, theirs)
    return end

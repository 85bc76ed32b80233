"""The part ``optimizer steps``: when each optimizer stepped, and how long that took.

Hooks of torch's own, for all optimizers that are and will be. A step that raises has no end: the
next one of its thread begins anew.

Where a step is compiled, hooks stay as they are. If that happens while ours are there, they stay
when we go, do nothing more, and are taken up again when we come back.
"""

from __future__ import annotations

from _thread import get_ident
from collections import OrderedDict, deque
from functools import partial
from itertools import count
from time import monotonic_ns
from types import FunctionType
from weakref import ref

from ..framework import Part
from ..modules import Missing, loaded, need
from ..visits import Visits
from ..wire import OPTIMIZER_NS, OPTIMIZER_STEPS
from .compiled import step_is_compiled
from .patch import hide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# Steps between two looks: two seconds of steps of a tenth of a millisecond.
CAPACITY = 20_000
# Optimizers that are known by themselves.
MOST_OPTIMIZERS = 64
# Without a step for so long it may be that one was compiled.
SILENT_SECONDS = 30

# The threads that are inside of an optimizer, and since when. What it reads is its own affair.
inside: dict[int, int] = {}
# The optimizers that have stepped; each goes with its optimizer.
known: dict[int, ref[Any]] = {}


class OptimizerSteps(Part):
    """Listens to all optimizers."""

    name = "optimizer steps"

    def __init__(self, room: Any) -> None:
        super().__init__(room)
        self._steps = self._ns = self._missed = self._silent = 0
        # By turns the optimizer, and when its step began and ended.
        self._took: deque[int] = deque(maxlen=4 * 3 * CAPACITY)
        self._feed: Callable[[Iterable[int]], None] | None = None

    def begin(self) -> None:
        """Hang in both hooks."""
        before, after = (
            need("torch.optim.optimizer", f"_global_optimizer_{when}_hooks")
            for when in ("pre", "post")
        )
        # They number them. Ours has a name instead, and nobody's number changes.
        for hooks in (before, after):
            if not isinstance(hooks, (dict, OrderedDict)):
                raise Missing("torch.optim.optimizer keeps its hooks elsewhere")
        visits = self.room.steps.visits
        ours = _hooks(self._took.extend, inside, known, visits)
        hide(*ours)
        kept = [_same(hooks, hook) for hooks, hook in zip((before, after), ours)]
        if None in kept and step_is_compiled():
            raise Missing("torch.compile has compiled one, and would again for a hook of ours")
        inside.clear()
        known.clear()
        self._feed, stop = self.room.steps.feed("optimizer")
        self.hooks.add(stop)
        key = next(number for number in count(-1, -1) if number not in {*before, *after})
        for hooks, hook, there in zip((before, after), ours, kept):
            self._hang(hooks, key, hook, there)

    def second(self, _now: int) -> dict[str, int | None]:
        """Add up the steps."""
        number = len(self._took) // 3
        if number > CAPACITY:
            self._missed += 1
            self._took.clear()
            number = 0
        pop, ticks = self._took.popleft, []
        for _ in range(number):
            key, began, ended = pop(), pop(), pop()
            self._ns += ended - began
            ticks += [ended, key]
        if self._feed is not None:
            self._feed(ticks)
        self._steps += number
        self._silent = 0 if number else self._silent + 1
        if self._silent == SILENT_SECONDS and not self._steps and step_is_compiled():
            self.room.tell("steps of an optimizer that torch.compile has compiled are not seen")
        return {OPTIMIZER_STEPS: self._steps, OPTIMIZER_NS: self._ns}

    def lost(self) -> int:
        """Return how often it was too much."""
        return self._missed

    def _hang(self, hooks: dict[int, Any], key: int, ours: Any, kept: Any) -> None:
        hook = ours if kept is None else kept

        def undo() -> None:
            if not any(each is hook for each in list(hooks.values())):
                return
            if kept is not None or step_is_compiled():
                _become(hook, _at_rest(hook))
            else:
                del hooks[key]

        self.hooks.add(undo)
        if kept is None:
            hooks[key] = ours
        else:
            _become(kept, ours)


def _hooks(
    note: Callable[[tuple[int, int, int]], Any],
    begun: dict[int, int],
    met: dict[int, ref[Any]],
    visits: Visits,
) -> tuple[Callable[..., None], Callable[..., None]]:
    clock, ident, wanted, come = monotonic_ns, get_ident, visits.wanted, visits.come
    # A compiler that goes through an optimizer's step takes this for true, and nothing of ours in.
    compiling = (loaded("torch.compiler") or {}).get("is_dynamo_compiling", bool)

    def began(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if compiling():
            return
        begun[ident()] = clock()

    def ended(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if compiling():
            return
        now = clock()
        key = id(optimizer)
        note((key, begun.pop(ident(), now), now))
        if key not in met and len(met) < MOST_OPTIMIZERS:
            met[key] = ref(optimizer, partial(met.pop, key))
        if wanted:
            come()

    return began, ended


def _same(hooks: dict[int, Any], ours: Any) -> Any:
    """Return what an agent before us has left there, if it is what ours is."""
    found = (hook for hook in list(hooks.values()) if isinstance(hook, FunctionType))
    return next((hook for hook in found if hook.__code__ == ours.__code__), None)


def _become(hook: Any, other: Any) -> None:
    """Have a hook do what another of the same code does."""
    for cell, of_other in zip(hook.__closure__, other.__closure__):
        cell.cell_contents = of_other.cell_contents


def _at_rest(hook: Any) -> Any:
    """Return one of the same code that keeps nothing."""
    pair = _hooks(id, _Full(), _Full(), Visits(None))
    return next(each for each in pair if each.__code__ == hook.__code__)


class _Full(dict):  # type: ignore[type-arg]
    """Takes nothing in."""

    def __setitem__(self, _key: Any, _value: Any) -> None:
        """Forget it."""

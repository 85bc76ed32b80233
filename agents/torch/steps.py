"""The part ``optimizer steps``: when each optimizer stepped, and how long that took.

By torch's own global hooks, for all optimizers that exist and will exist. A step that raises has no
end: the next one of its thread begins anew. Where steps are very fast, all are counted and some are
noted. A step that is given a closure runs the model inside, as all steps of Lightning do: it is
counted, and how long the optimizer itself takes is not known.

Where a step is compiled, hooks are left as they are. If that happens while ours are installed, they
stay when we go, do nothing more, and are used again when we come back. The same holds where the job
iterates over its hooks at the moment when we go.
"""

from __future__ import annotations

from _thread import get_ident
from collections import OrderedDict, deque
from functools import partial
from itertools import compress, count
from time import monotonic_ns
from types import FunctionType

from ..downsampling import BURST, ROUND, Downsampler
from ..framework import Part
from ..main_thread import MainThreadCall
from ..modules import Missing, loaded, need
from ..ring import drain
from ..steps import APART, FEW
from ..wire import OPTIMIZER_NS, OPTIMIZER_STEPS
from .compiled_steps import step_is_compiled
from .live_dict import add, remove
from .patch import hide
from .stepped_optimizers import SteppedOptimizers, remembering, stepped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# Steps between two calls of ``second``: two seconds of steps of a tenth of a millisecond.
CAPACITY = 20_000
# Fast is more than so many in a second.
MANY = 1000
# Stands between two noted steps that do not follow each other.
BETWEEN = (0, 0, APART)
# The beginning of a step that is only counted, and of one that is given a closure.
PASSES, GIVEN = -1, -2
# Without a step for so long, the step may have been compiled.
SILENT_SECONDS = 30
# How often we try to add our hooks to the job's, between two of its steps.
MOST_TRIES = 60

MODULE = "torch.optim.optimizer"
PLACES = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")

# The threads that are inside an optimizer's step, and since when. Its own reads do not count.
inside: dict[int, int] = {}


class OptimizerSteps(Part):
    """Hooks into all optimizers."""

    name = "optimizer steps"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._steps = self._ns = self._missed = self._silent = 0
        # In turn: the optimizer, when its step began (0: unknown, or ``GIVEN``), and when it ended.
        self._took: deque[int] = deque(maxlen=4 * 3 * CAPACITY)
        self._downsampler = Downsampler(monotonic_ns(), MANY)
        self._was_downsampled = False
        self._feed: Callable[[Iterable[int], float], None] | None = None
        # The hooks that are not there yet.
        self._missing_hooks: list[tuple[str, Any]] = []
        self._key = self._tries = 0

    def begin(self) -> None:
        """Install both hooks."""
        self._names = need(MODULE)
        main_call = self.context.steps.main_call
        ours = _hooks(self._took.extend, inside, stepped, main_call, self._downsampler)
        hide(*ours)
        # The hook for the beginning needs the other one: it is added last, and removed first.
        kept = [(name, hook, self._kept(name, hook)) for name, hook in zip(PLACES, ours)][::-1]
        if any(there is None for _, _, there in kept):
            _refuse_compiled()
        inside.clear()
        stepped.reset()
        self._feed, stop = self.context.steps.feed("optimizer")
        self.hooks.add(stop)
        # Torch numbers its hooks upwards, and a number never changes.
        self._key = next(key for key in count(-1, -1) if not self._is_taken(key))
        for name, hook, there in kept:
            if there is None:
                self.hooks.add(partial(_remove_hook, self._names, name, self._key, hook))
                self._missing_hooks.append((name, hook))
            else:
                self.hooks.add(partial(_become, there, _idle_hook(there)))
                _become(there, hook)
        self._add_hooks()

    def second(self, now: int) -> dict[str, int | None]:
        """Add up the steps."""
        if self._missing_hooks:
            _refuse_compiled()
            self._add_hooks()
        number = noted = len(self._took) // 3
        if number > CAPACITY:
            self._missed += 1
            self._took.clear()
            number = 0
        took = drain(self._took, 3 * number)
        keys, began, ended = took[::3], took[1::3], took[2::3]
        optimizers = {*keys} - {0}
        if optimizers:
            stepped.seen(optimizers)
        # With so many that a burst has each of them once, none would be seen twice in a row.
        weight = self._downsampler.second(now, noted, may=len(optimizers) <= FEW)
        came = self._downsampler.came if weight > 1 else 0
        if not came:
            keys, began, ended = _whole(keys, began, ended)
        self._tick(keys, ended, came)
        self._count(began, ended, came)
        self._silent = 0 if number else self._silent + 1
        if self._silent == SILENT_SECONDS and not self._steps and step_is_compiled():
            self.context.tell("steps of an optimizer that torch.compile has compiled are not seen")
        is_known = self._ns > 0 or not self._steps
        return {OPTIMIZER_STEPS: self._steps, OPTIMIZER_NS: self._ns if is_known else None}

    def _tick(self, keys: list[int], ended: list[int], came: int) -> None:
        if self._feed is None:
            return
        noted = len(keys) - keys.count(0)
        ticks = [0] * (2 * len(keys))
        ticks[::2], ticks[1::2] = ended, keys
        if self._was_downsampled and not came:
            # There were others between the last noted one and the first of these.
            ticks[:0] = APART, 0
        self._was_downsampled = came > 0
        self._feed(ticks, came / noted if came and noted else 1.0)

    def _count(self, began: list[int], ended: list[int], came: int) -> None:
        # A step may have been under way when we came.
        noted = len(began) - began.count(0)
        known = [n for n, since in enumerate(began) if since > 0]
        ns = sum(ended[n] for n in known) - sum(began[n] for n in known)
        self._ns += ns * came // noted if came and noted else ns
        self._steps += came or noted

    def facts(self) -> dict[str, Any]:
        """Return which share of the steps is noted."""
        return self._downsampler.facts("optimizer_steps")

    def lost(self) -> int:
        """Return how often there were too many."""
        return self._missed

    def _kept(self, name: str, ours: Any) -> Any:
        """Return a hook that an earlier agent has left there, if its code is the same as ours."""
        hooks = need(MODULE, name)
        if type(hooks) is not OrderedDict:
            raise Missing("torch.optim.optimizer keeps its hooks in another way")
        found = (hook for hook in list(hooks.values()) if type(hook) is FunctionType)
        return next((hook for hook in found if hook.__code__ == ours.__code__), None)

    def _is_taken(self, key: int) -> bool:
        return any(key in self._names[name] for name in PLACES)

    def _add_hooks(self) -> None:
        """Add the remaining hooks, unless a step iterates over them just now."""
        while self._missing_hooks:
            name, hook = self._missing_hooks[0]
            if not add(self._names, name, self._key, hook):
                self._tries += 1
                if self._tries > MOST_TRIES:
                    raise Missing("the job is inside of hooks of its own whenever we look")
                return
            del self._missing_hooks[0]


def _whole(*columns: list[int]) -> tuple[list[int], ...]:
    """Leave out the gaps between rounds: all steps were noted."""
    if 0 not in columns[0]:
        return columns
    return tuple(list(compress(column, columns[0])) for column in columns)


def _refuse_compiled() -> None:
    if step_is_compiled():
        raise Missing("torch.compile has compiled one, and would again for a hook of ours")


def _remove_hook(names: dict[str, Any], name: str, key: int, hook: Any) -> None:
    if not _has(names[name], hook):
        return
    if step_is_compiled() or not remove(names, name, key):
        _become(hook, _idle_hook(hook))


def _has(hooks: dict[int, Any], hook: Any) -> bool:
    return any(each is hook for each in list(hooks.values()))


def _hooks(
    note: Callable[[tuple[int, int, int]], Any],
    begun: dict[int, int],
    optimizers: SteppedOptimizers,
    main_call: MainThreadCall,
    downsampler: Downsampler,
) -> tuple[Callable[..., None], Callable[..., None]]:
    return _beginning(begun, downsampler), _ending(note, begun, optimizers, main_call, downsampler)


def _compiling() -> Callable[[], bool]:
    """Return the function that is true while a compiler traces an optimizer's step.

    Then nothing of ours is traced.
    """
    found: Callable[[], bool] = (loaded("torch.compiler") or {}).get("is_dynamo_compiling", bool)
    return found


def _beginning(begun: dict[int, int], downsampler: Downsampler) -> Callable[..., None]:
    compiling, clock, ident = _compiling(), monotonic_ns, get_ident
    position, active = downsampler.position, downsampler.active

    def began(_optimizer: Any, args: Any, kwargs: Any) -> None:
        if compiling():
            return
        if (len(args) > 1 and callable(args[1])) or (kwargs and callable(kwargs.get("closure"))):
            begun[ident()] = GIVEN
        else:
            begun[ident()] = PASSES if active and position[0] >= BURST else clock()

    return began


def _ending(
    note: Callable[[tuple[int, int, int]], Any],
    begun: dict[int, int],
    optimizers: SteppedOptimizers,
    main_call: MainThreadCall,
    downsampler: Downsampler,
) -> Callable[..., None]:
    compiling, clock, ident = _compiling(), monotonic_ns, get_ident
    pending, run_pending = main_call.pending, main_call.run_pending
    position, number = downsampler.position, downsampler.number
    active, remember = downsampler.active, remembering(optimizers)
    unknown = optimizers.unknown

    def ended(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if compiling():
            return
        since = begun.pop(ident(), 0)
        if since == PASSES or (since == GIVEN and active and position[0] >= BURST):
            position[1] = 1
        else:
            if active and position[1]:
                position[1] = 0
                note(BETWEEN)
            key = id(optimizer)
            note((key, since, clock()))
            if unknown and key not in optimizers:
                remember(optimizer)
        if active:
            position[0] = number() % ROUND
        if pending:
            run_pending()

    return ended


def _become(hook: Any, other: Any) -> None:
    """Make a hook do what another one with the same code does."""
    for cell, of_other in zip(hook.__closure__, other.__closure__):
        cell.cell_contents = of_other.cell_contents


def _idle_hook(hook: Any) -> Any:
    """Return a hook with the same code that notes nothing."""
    pair = _hooks(id, _Full(), _Full(), MainThreadCall(None), Downsampler(0, 0))
    return next(each for each in pair if each.__code__ == hook.__code__)


class _Full(SteppedOptimizers):
    """Remembers nothing."""

    def __setitem__(self, _key: Any, _value: Any) -> None:
        """Ignore it."""

"""Steps by the calls of each ``tf.function``: Keras' own train function, or the user's step.

A call within another's trace is part of that one's graph. Where a graph computes gradients, those
that surely do not are no steps: what acts, scores or logs between them. Of the rest the slowest
makes a whole step; where all compute gradients the fastest, as with optimizers.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from weakref import ref

from ..framework import Part
from ..jax.internals import own, replace_in_class
from ..modules import loaded, need
from .graphs import OTHER, TRAINS, GraphLook
from .internals import backend, dress, is_eager
from .pipelines import meet_iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
SOURCE = "tf.function"
# Functions of the same code that are told apart: one that is made anew for each step is one.
MOST_OF_CODE = 8
MOST_FUNCTIONS = 256
# In place of a key: it is no step.
QUIET = 0

# The functions that were called, and what each ticks as.
called: dict[int, int] = {}


class Calls(Part):
    """Ticks after each call that is not part of a graph."""

    name = "steps by tf.function"

    def begin(self) -> None:
        """Wrap the call of all functions, those that exist and those that will."""
        kind = need(MODULE, "Function")
        original = own(kind, "__call__")
        tick, stop = self.context.steps.listen(SOURCE)
        self.hooks.add(stop)
        called.clear()
        self._keys = called
        self._living: dict[int, tuple[ref[Any], ...]] = {}
        self._codes: dict[int, int] = {}
        # The key of each before another was found to train, and whether its own graph does.
        self._own: dict[int, int] = {}
        self._judged: dict[int, GraphLook] = {}
        # Those that are no steps beside others.
        self._quiet: dict[int, bool] = {}
        self._policy: str | None = None
        self._sizes = (0, 0)
        ticks = [tick]
        self.hooks.add(ticks.clear)
        ours = _calling(original, ticks, self._keys, self._meet, is_eager())
        replace_in_class(self.hooks, kind, "__call__", ours)

    def second(self, _now: int) -> dict[str, int | None]:
        """Tell functions that train from others, where there are new ones."""
        sizes = (len(self._living), len(self._judged))
        if sizes != self._sizes or sizes[0] != sizes[1]:
            self._judge()
            self._sizes = (len(self._living), len(self._judged))
        return {}

    def _judge(self) -> None:
        # While these are held none of them goes, and none of their rows.
        found = [(key, refs[0]()) for key, refs in list(self._living.items())]
        alive = [(key, each) for key, each in found if each is not None]
        if not alive:
            return
        for key, each in alive:
            if key not in self._judged and (graph := _graph(each)) is not None:
                self._judged[key] = GraphLook(graph)
        trains = any(self._does(key) == TRAINS for key, _ in alive)
        for key, _ in alive:
            quiet = trains and self._does(key) == OTHER
            self._keys[key] = QUIET if quiet else self._own[key]
            if quiet:
                self._quiet[key] = True
            else:
                self._quiet.pop(key, None)
        surely = all(self._does(key) == TRAINS for key, _ in alive if key not in self._quiet)
        self.context.steps.choose_among(SOURCE, self._quiet, is_fastest=trains and surely)

    def facts(self) -> dict[str, Any]:
        """Return how many functions run, and whether some are compiled by XLA."""
        found = [each[0]() for each in list(self._living.values())]
        alive = [each for each in found if each is not None]
        if not alive:
            return {}
        return {
            "functions": len(alive),
            "jit_compile": any(vars(each).get("_jit_compile") is True for each in alive),
            **self._computed(),
        }

    def _computed(self) -> dict[str, Any]:
        """Return what the graphs that train compute, and where; of all, where none surely does."""
        looks = list(self._judged.values())
        looks = [each for each in looks if each.does == TRAINS] or looks
        products: dict[str, int] = {}
        for each in looks:
            for dtype, number in each.products.items():
                products[dtype] = products.get(dtype, 0) + number
        found: dict[str, Any] = {"products": products} if products else {}
        if looks:
            # What is put nowhere by name is on the first one.
            names = set().union(*(each.devices for each in looks))
            kind = backend()
            found["devices_used"] = max(1, sum(each.startswith(f"{kind}:") for each in names))
        if self._policy is not None:
            found["dtype_policy"] = self._policy
        return found

    def _does(self, key: int) -> int | None:
        look = self._judged.get(key)
        return None if look is None else look.does

    def _meet(self, function: Any, arguments: tuple[Any, ...]) -> int:
        """Note a function that was not seen before; on the job's thread, and it cannot fail."""
        names = function.__dict__
        code = id(names.get("_key_for_call_stats"))
        if len(self._keys) >= MOST_FUNCTIONS:
            return code
        number = self._codes[code] = self._codes.get(code, 0) + 1
        key = id(function)
        # What runs when it goes must be C: a line of ours there could lose a signal.
        tables: tuple[dict[int, Any], ...]
        tables = (self._keys, self._living, self._own, self._judged, self._quiet)
        self._keys[key] = self._own[key] = key if number <= MOST_OF_CODE else code
        self._living[key] = tuple(ref(function, partial(each.pop, key)) for each in tables)
        for each in arguments:
            meet_iterator(each)
        # It is known on this thread alone.
        self._policy = _policy()
        return self._keys[key]


def _policy() -> str | None:
    """Return Keras' policy of types for what this thread makes from here on; it cannot fail."""
    with suppress(Exception):
        state = (loaded("keras.src.backend.common.global_state") or {}).get("GLOBAL_STATE_TRACKER")
        policy = getattr(state, "dtype_policy", None)
        if policy is None:
            policy = (loaded("tf_keras.src.mixed_precision.policy") or {}).get("_global_policy")
        name = None if policy is None else vars(policy).get("_name")
        return name if isinstance(name, str) else None
    return None


def _graph(function: Any) -> Any:
    """Return a graph of a function; ``None``: there is none yet, or not where we know it."""
    config = function.__dict__.get("_variable_creation_config")
    cache = getattr(config, "function_cache", None)
    for each in () if cache is None else cache.values():
        return getattr(each, "graph", None)
    return None


def _calling(
    original: Callable[..., Any],
    ticks: list[Callable[[int], None]],
    keys: dict[int, int],
    meet: Callable[[Any, tuple[Any, ...]], int],
    eager: Callable[[], bool],
) -> Any:
    key_of = keys.get

    def call(function: Any, *arguments: Any, **options: Any) -> Any:
        result = original(function, *arguments, **options)
        if ticks and eager():
            key = key_of(id(function))
            if key is None:
                key = meet(function, arguments)
            if key:
                for tick in ticks:
                    tick(key)
        return result

    return dress(call, original)

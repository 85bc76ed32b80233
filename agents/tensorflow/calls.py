"""Steps by the calls of each ``tf.function``: Keras' own train function, or the user's step.

A call within another's trace is part of that one's graph. Of several functions the slowest makes a
whole step, as with optimizers.
"""

from __future__ import annotations

from functools import partial
from weakref import ref

from ..framework import Part
from ..jax.internals import own, replace_in_class
from ..modules import need
from .internals import dress, is_eager
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
        ticks = [tick]
        self.hooks.add(ticks.clear)
        ours = _calling(original, ticks, self._keys, self._meet, is_eager())
        replace_in_class(self.hooks, kind, "__call__", ours)

    def facts(self) -> dict[str, Any]:
        """Return how many functions run, and whether some are compiled by XLA."""
        found = [each[0]() for each in list(self._living.values())]
        alive = [each for each in found if each is not None]
        if not alive:
            return {}
        return {
            "functions": len(alive),
            "jit_compile": any(vars(each).get("_jit_compile") is True for each in alive),
        }

    def _meet(self, function: Any, arguments: tuple[Any, ...]) -> int:
        """Note a function that was not seen before; on the job's thread, and it cannot fail."""
        names = function.__dict__
        code = id(names.get("_key_for_call_stats"))
        if len(self._keys) >= MOST_FUNCTIONS:
            return code
        number = self._codes[code] = self._codes.get(code, 0) + 1
        key = id(function)
        # What runs when it goes must be C: a line of ours there could lose a signal.
        tables: tuple[dict[int, Any], ...] = (self._keys, self._living)
        self._living[key] = tuple(ref(function, partial(each.pop, key)) for each in tables)
        self._keys[key] = key if number <= MOST_OF_CODE else code
        for each in arguments:
            meet_iterator(each)
        return self._keys[key]


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
            for tick in ticks:
                tick(key)
        return result

    return dress(call, original)

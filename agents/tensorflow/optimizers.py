"""Steps by the optimizers of Keras, where they run one operation after the other.

Within a ``tf.function`` an optimizer is part of the graph, and the call of that is the step.
"""

from __future__ import annotations

from ..framework import Part
from ..jax.internals import own, replace_in_class
from ..modules import loaded
from .internals import dress, is_eager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SOURCE = "optimizer"
# Keras 3 and Keras 2: the module, the class, and the method that all steps go through.
PLACES = (
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),
    ("tf_keras.src.optimizers.optimizer", "Optimizer", "apply_gradients"),
)

# Whether one stepped outside of any graph.
stepped = [False]


class OptimizerSteps(Part):
    """Ticks at the end of each step; Keras is often imported later than TensorFlow."""

    name = "steps by optimizers of Keras"

    def begin(self) -> None:
        """Look for Keras."""
        self._left = list(PLACES)
        self._ticks: list[Callable[[int], None]] = []
        self._eager = is_eager()
        stepped[0] = False
        self._find()

    def second(self, _now: int) -> dict[str, int | None]:
        """Look for what has been imported since."""
        if self._left:
            self._find()
        return {}

    def _find(self) -> None:
        for place in list(self._left):
            module, name, method = place
            kind = (loaded(module) or {}).get(name)
            if kind is None:
                continue
            self._left.remove(place)
            original = own(kind, method)
            if not self._ticks:
                tick, stop = self.context.steps.listen(SOURCE)
                self.hooks.add(stop)
                self._ticks.append(tick)
                self.hooks.add(self._ticks.clear)
            ours = _stepping(original, self._ticks, self._eager)
            replace_in_class(self.hooks, kind, method, ours)


def _stepping(
    original: Callable[..., Any], ticks: list[Callable[[int], None]], eager: Callable[[], bool]
) -> Any:
    def step(optimizer: Any, *arguments: Any, **options: Any) -> Any:
        result = original(optimizer, *arguments, **options)
        if ticks and eager():
            stepped[0] = True
            for tick in ticks:
                tick(id(optimizer))
        return result

    return dress(step, original)

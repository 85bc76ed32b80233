"""Steps by the batches of Keras' ``fit`` on JAX and PyTorch: one ends with its callbacks.

On TensorFlow the call of the graph is the step.
"""

from __future__ import annotations

from functools import wraps

from .framework import Part
from .jax.internals import own, replace_in_class
from .modules import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

SOURCE = "fit"


class BatchSteps(Part):
    """Ticks when a batch of training ends; Keras is often imported later than its backend."""

    name = "steps by batches of Keras"
    # As Keras calls what it computes with: a job may have imported others, too.
    backend: ClassVar[str] = ""

    def begin(self) -> None:
        """Look for Keras."""
        self._found = False
        self._find()

    def second(self, _now: int) -> dict[str, int | None]:
        """Look for it again, if it was not there."""
        if not self._found:
            self._find()
        return {}

    def _find(self) -> None:
        kind = (loaded("keras.src.callbacks.callback_list") or {}).get("CallbackList")
        backend = (loaded("keras.src.backend.config") or {}).get("_BACKEND")
        if kind is None or backend is None:
            return
        self._found = True
        if backend != self.backend:
            return
        original = own(kind, "on_train_batch_end")
        tick, stop = self.context.steps.listen(SOURCE)
        self.hooks.add(stop)
        ticks = [tick]
        self.hooks.add(ticks.clear)
        replace_in_class(self.hooks, kind, "on_train_batch_end", _ending(original, ticks))


def _ending(original: Callable[..., None], ticks: list[Callable[[int], None]]) -> Any:
    # Whatever its version takes is passed on; somebody may keep it when we are gone.
    @wraps(original)
    def end(*arguments: Any, **more: Any) -> None:
        original(*arguments, **more)
        for tick in ticks:
            tick(0)

    return end


class OnJax(BatchSteps):
    """Where JAX computes."""

    backend = "jax"


class OnTorch(BatchSteps):
    """Where PyTorch computes."""

    backend = "torch"

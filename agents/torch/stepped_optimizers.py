"""The optimizers that have stepped, as the hooks of their steps have seen them."""

from __future__ import annotations

from functools import partial
from weakref import ref

from .patch import hide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Optimizers that are known by themselves.
MOST_OPTIMIZERS = 64


class SteppedOptimizers(dict):  # type: ignore[type-arg]
    """The optimizers that have stepped, as references by their id; each goes with its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        # Not empty while one has yet to step that is not among them: else no hook checks.
        self.unknown: list[bool] = []
        self._missing: set[int] = set()

    def reset(self) -> None:
        """Forget all, and have the hooks check the first that steps."""
        self.clear()
        self._missing.clear()
        self.unknown[:] = [True]

    def seen(self, optimizers: set[int]) -> None:
        """Have the hooks check until all that have stepped are known, however seldom they do."""
        self._missing = {key for key in self._missing | optimizers if key not in self}
        if len(self._missing) > MOST_OPTIMIZERS:
            # Those that are gone are never seen again. The others will step again.
            self._missing = {key for key in optimizers if key not in self}
        self.unknown[:] = [True] if self._missing else []


stepped = SteppedOptimizers()


def remembering(optimizers: SteppedOptimizers) -> Callable[[Any], None]:
    """Return what a hook calls for an optimizer that is not among them."""

    def remember(optimizer: Any) -> None:
        if len(optimizers) < MOST_OPTIMIZERS:
            key = id(optimizer)
            optimizers[key] = ref(optimizer, partial(optimizers.pop, key))

    hide(remember)
    return remember

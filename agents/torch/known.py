"""The optimizers that have stepped: the hooks of their steps meet them, others look at them."""

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


class Known(dict):  # type: ignore[type-arg]
    """The optimizers that have stepped, as references by their id; each goes with its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        # Not empty while one is to step that is not among them: else no hook looks.
        self.strange: list[bool] = []
        self._missing: set[int] = set()

    def begin_anew(self) -> None:
        """Know nobody, and have the hooks look at the first that comes."""
        self.clear()
        self._missing.clear()
        self.strange[:] = [True]

    def seen(self, optimizers: set[int]) -> None:
        """Have the hooks look until all are known that have stepped, however seldom they do."""
        self._missing = {key for key in self._missing | optimizers if key not in self}
        if len(self._missing) > MOST_OPTIMIZERS:
            # Those that have gone are never met. Whoever is left steps again.
            self._missing = {key for key in optimizers if key not in self}
        self.strange[:] = [True] if self._missing else []


known = Known()


def meeting(met: Known) -> Callable[[Any], None]:
    """Return what a hook calls for one that it has not seen."""

    def meet(optimizer: Any) -> None:
        if len(met) < MOST_OPTIMIZERS:
            key = id(optimizer)
            met[key] = ref(optimizer, partial(met.pop, key))

    hide(meet)
    return meet

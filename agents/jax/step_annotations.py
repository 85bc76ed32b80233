"""Steps that the user marks: each ``jax.profiler.StepTraceAnnotation`` begins one."""

from __future__ import annotations

from functools import wraps

from ..framework import Part
from ..modules import need
from .internals import own, replace_in_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SOURCE = "StepTraceAnnotation"


class StepAnnotations(Part):
    """Ticks when a mark is made."""

    name = "steps by StepTraceAnnotation"

    def begin(self) -> None:
        """Wrap the method that makes a mark."""
        kind = need("jax.profiler", SOURCE)
        original = own(kind, "__init__")
        tick, stop = self.context.steps.listen(SOURCE)
        self.hooks.add(stop)
        ticks = [tick]
        self.hooks.add(ticks.clear)
        replace_in_class(self.hooks, kind, "__init__", _marking(original, ticks))


def _marking(original: Callable[..., None], ticks: list[Callable[[int], None]]) -> Any:
    # Whatever its version takes is passed on; somebody may keep it when we are gone.
    @wraps(original)
    def mark(*arguments: Any, **more: Any) -> None:
        for tick in ticks:
            tick(0)
        original(*arguments, **more)

    return mark

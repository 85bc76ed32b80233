"""The part ``profiler steps``: the user's own ``torch.profiler`` marks where a step ends."""

from __future__ import annotations

from ..framework import Part
from ..modules import loaded, need
from .patch import copy_names, hide, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "torch.profiler.profiler"


class ProfilerSteps(Part):
    """Wraps ``profile.step`` once its module is there."""

    name = "profiler steps"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._begun = False

    def begin(self) -> None:
        """Wrap it, if the module is there."""
        if self._begun or loaded(MODULE) is None:
            return
        self._begun = True
        profile = need(MODULE, "profile")
        original = need(MODULE, "profile", "step")
        tick, stop = self.context.steps.listen("ProfilerStep")
        self.hooks.add(stop)
        ours = _step(original, tick)
        hide(ours)
        replace(self.hooks, profile, "step", ours)

    def second(self, _now: int) -> dict[str, int | None]:
        """Check whether the module is there by now."""
        self.begin()
        return {}


def _step(original: Callable[..., Any], tick: Callable[[int], None]) -> Callable[..., Any]:
    def step(*args: Any, **kwargs: Any) -> Any:
        # Before the call: what the profiler does in it belongs to the next step.
        tick(0)
        return original(*args, **kwargs)

    copy_names(step, original)
    return step

"""The part ``profiler steps``: the user's own ``torch.profiler`` says where a step ends."""

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
    """Listens to ``profile.step``, from when its module is there."""

    name = "profiler steps"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._begun = False

    def begin(self) -> None:
        """Listen, if there is something to listen to yet."""
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
        """See whether the module has come."""
        self.begin()
        return {}


def _step(original: Callable[..., Any], tick: Callable[[int], None]) -> Callable[..., Any]:
    def step(*args: Any, **kwargs: Any) -> Any:
        # Before it: what a profiler does then belongs to one step or the other.
        tick(0)
        return original(*args, **kwargs)

    copy_names(step, original)
    return step

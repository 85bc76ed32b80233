"""What a probe may use of the agent."""

from __future__ import annotations

import time

from .hooks import Hooks
from .steps import Steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .timers import Timer, Timers


class ProbeContext:
    """The context of one probe: where its records go, and what is undone when it ends."""

    __slots__ = ("hooks", "main", "put", "steps", "tell", "timers")

    def __init__(
        self,
        timers: Timers,
        put: Callable[[list[Any]], None],
        tell: Callable[[str], None],
        main: int | None,
        steps: Steps | None = None,
    ) -> None:
        self.hooks = Hooks()
        self.timers = timers
        # Takes a record, from any thread.
        self.put = put
        # Says why the probe does less than it could.
        self.tell = tell
        # The main thread, where it is known for certain.
        self.main = main
        # Where its ticks go; new for a probe that runs alone.
        self.steps = steps if steps is not None else Steps()

    def every(self, timer: Timer) -> None:
        """Run a timer until the probe ends."""
        self.hooks.add(lambda: self.timers.remove(timer))
        self.timers.add(timer, time.monotonic_ns())

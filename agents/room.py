"""What a probe may use of the agent."""

from __future__ import annotations

import time

from .hooks import Hooks
from .steps import Steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .duties import Duties, Duty


class Room:
    """The place of one probe: where its records go, and what is undone when it ends."""

    __slots__ = ("duties", "hooks", "main", "put", "steps", "tell")

    def __init__(
        self,
        duties: Duties,
        put: Callable[[list[Any]], None],
        tell: Callable[[str], None],
        main: int | None,
        steps: Steps | None = None,
    ) -> None:
        self.hooks = Hooks()
        self.duties = duties
        # Takes a record, from any thread.
        self.put = put
        # Says why the probe does less than it could.
        self.tell = tell
        # The main thread, where it is known for certain.
        self.main = main
        # Where its ticks go; made here for a probe that stands alone.
        self.steps = steps if steps is not None else Steps()

    def every(self, duty: Duty) -> None:
        """Do something again and again, until the probe ends."""
        self.hooks.add(lambda: self.duties.remove(duty))
        self.duties.add(duty, time.monotonic_ns())

"""Whether the agent's thread costs more than it may."""

from __future__ import annotations

import time

BUDGET_SHARE = 0.005
WINDOW_NS = 5_000_000_000
# One window may hold a collection of the job's garbage that happened to run on our thread.
WINDOWS = 2


class Meter:
    """Looks at the CPU time of the thread it is asked on."""

    def __init__(self) -> None:
        self._cpu = time.thread_time_ns()
        self._over = 0

    def is_over(self) -> bool:
        """Tell once a window whether several windows in a row were over the budget."""
        cpu = time.thread_time_ns()
        # A new thread begins at nothing.
        used = cpu - self._cpu if cpu >= self._cpu else cpu
        self._cpu = cpu
        self._over = self._over + 1 if used > BUDGET_SHARE * WINDOW_NS else 0
        if self._over < WINDOWS:
            return False
        self._over = 0
        return True

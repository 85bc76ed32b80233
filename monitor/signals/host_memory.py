"""The main memory that is left for a job: of its machine, and below its own limit."""

from __future__ import annotations

from whyidle.monitor.core import metrics as m
from whyidle.monitor.signals.window import Window


def room_on_host(window: Window, used: float = 0.0) -> list[float]:
    """Return what is free now: the mean of a time in which it grew would promise too much.

    ``used`` is what the job takes, where nothing else says so.
    """
    limit = window.job.means.get(m.JOB_MEMORY_LIMIT)
    # What processes share counts once there; their own sum has it once for each.
    taken = window.job.last(m.JOB_MEMORY_USED) or window.job.lasts.get(m.JOB_RSS, used)
    left = limit and max(0.0, limit - taken)
    return [room for room in (window.job.last(m.HOST_MEMORY_AVAILABLE), left) if room is not None]

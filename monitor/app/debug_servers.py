"""PyTorch's debug server of a job that stands: found by the port that it is documented to have."""

from __future__ import annotations

import contextlib
from typing import Final

from whyidle.monitor.core.errors import Problem
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.tree import descendants
from whyidle.monitor.render.console import say
from whyidle.monitor.signals.window import Window
from whyidle.monitor.sources.debug_server import PORT
from whyidle.monitor.tracing.profiler_server import listening

# Later the pids of a recording may be others'.
LATEST_S: Final = 60.0


def offer(window: Window) -> None:
    """Name the server of a job of ranks that stands now: it may know more, and is not asked yet."""
    still, age = window.job.standstill, window.job.age_s
    is_now = not window.is_over or (age is not None and age < LATEST_S)
    if still is None or not is_now or (window.world_size or 1) < 2:
        return
    fs, ranks = ProcFs(), {each.pid for each in still.stands if each.pid}
    stats = fs.stats().values()
    # Rank 0 starts a process for it.
    for pid in (*ranks, *(stat.pid for stat in descendants(stats, ranks))):
        with contextlib.suppress(Problem):
            if PORT in listening(pid, fs):
                what = "The job has PyTorch's debug server on, which asks the ranks of all hosts."
                say(what, f"Ask it: monitor diagnose http://127.0.0.1:{PORT}")
                return

"""What ends a try early: a job that becomes much slower, or memory that nears its limit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.cgroup import Cgroup

# A job that takes so much longer for a step has lost enough, as soon as two pairs say so.
SLOWER: Final = 0.20
PAIRS: Final = 2
# Memory is near its limit where so little is free, or the job has taken half of what was.
LEAST_FREE: Final = 0.03
MOST_TAKEN: Final = 0.5
# What a job takes and gives back from one second to the next.
NO_GROWTH: Final = 64 << 20
_KIB: Final = 1024


def is_much_slower(ratios: Sequence[float]) -> bool:
    """Tell whether the pairs so far, as logarithms, say that the job loses by it."""
    return len(ratios) >= PAIRS and statistics.fmean(ratios) < -math.log1p(SLOWER)


class MemoryGuard:
    """What is left for the job, of its group or of the machine."""

    def __init__(self, key: ProcessKey, fs: ProcFs) -> None:
        self._key = key
        self._fs = fs
        self._cgroup = Cgroup(key.pid, fs)
        self._began_free, self._began_rss = self._free(), self._rss()

    def is_near(self) -> bool:
        """Tell whether it is about to run out, and the job has grown."""
        grown = self._rss() - self._began_rss
        limit, free = self._free()
        if grown <= NO_GROWTH:
            return False
        return free < LEAST_FREE * limit or grown > MOST_TAKEN * self._began_free[1]

    def _free(self) -> tuple[float, float]:
        """Return the limit, and how much is free below it."""
        machine = self._fs.fields("meminfo")
        all_, free = (int(machine[n].split()[0]) * _KIB for n in ("MemTotal", "MemAvailable"))
        limits = self._cgroup.read()
        if limits.memory_bytes is not None and limits.memory_used is not None:
            left = limits.memory_bytes - limits.memory_used
            if left < free:
                return limits.memory_bytes, left
        return all_, free

    def _rss(self) -> int:
        stat = self._fs.stat(self._key.pid)
        return 0 if stat is None else stat.rss

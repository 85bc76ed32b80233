"""What the monitor itself costs, and when it should do less."""

from __future__ import annotations

import time
from pathlib import Path

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import FIRST, UNSUPPORTED, Reading
from whyidle.monitor.processes.procfs import PAGE

# Everything together, the screen included; storing alone takes a tenth of it (benchmarks).
CPU_BUDGET_CORES = 0.10
JUDGED_OVER_SECONDS = 30.0


class Meter:
    """Meters this process between ticks."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._began: tuple[float, float] | None = None
        self.nvml_seconds: float | None = None
        self.tick_seconds: float | None = None

    def read(self, now: float, missed: int) -> Reading:
        """Return what was spent since the last tick."""
        reading = Reading({m.SELF_MISSED: missed})
        spent = time.process_time()
        if self._last is None:
            reading.unknown[m.SELF_CPU] = FIRST
        else:
            reading.values[m.SELF_CPU] = (spent - self._last[1]) / max(1e-6, now - self._last[0])
        self._last = (now, spent)
        self._began = self._began or self._last
        reading.put(m.SELF_RSS, _rss(), UNSUPPORTED)
        reading.put(m.SELF_NVML, self.nvml_seconds, "no GPU is read")
        reading.put(m.SELF_TICK, self.tick_seconds, FIRST)
        return reading

    def over_budget(self) -> float | None:
        """Return the cores taken when they are too many over a while; then it begins anew."""
        if self._began is None or self._last is None:
            return None
        seconds = self._last[0] - self._began[0]
        if seconds < JUDGED_OVER_SECONDS:
            return None
        cores = (self._last[1] - self._began[1]) / seconds
        self._began = self._last
        return cores if cores > CPU_BUDGET_CORES else None


def _rss() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    except OSError:
        return None

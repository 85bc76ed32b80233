"""What the monitor itself costs, when it should do less, and when it did not run at all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import FIRST, UNSUPPORTED, Reading
from whyidle.monitor.processes.procfs import PAGE
from whyidle.monitor.recording.clock import Sampler

# Everything together, the screen included; storing alone takes a tenth of it (benchmarks).
CPU_BUDGET_CORES = 0.10
JUDGED_OVER_SECONDS = 30.0
SLOWEST_PERIOD = 10.0
# A tick that comes later than this after it was due was not held up by our own work.
STILL_SECONDS = 2.0


class Overhead:
    """Measures this process between ticks."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._began: tuple[float, float] | None = None
        self._tick_at: float | None = None
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

    def notes(self, now: float, sampler: Sampler) -> Iterator[tuple[str, str]]:
        """Yield the kind and the text of what is to be noted; a monitor too dear ticks less."""
        before, self._tick_at = self._tick_at, now
        gap = 0.0 if before is None else now - before
        if gap > sampler.period + max(STILL_SECONDS, 2 * sampler.period):
            # A stopped monitor stops no job's clock.
            text = (
                f"The monitor stood still for {gap - sampler.period:.0f} s: it was stopped, or the"
                " machine was too busy for it. The job was not looked at meanwhile."
            )
            yield "stood_still", text
        cores = self.over_budget()
        if cores is not None and sampler.period < SLOWEST_PERIOD:
            sampler.slow_down()
            text = (
                f"The monitor took {cores:.0%} of a core ({m.SELF_CPU.help.lower().rstrip('.')}), "
                f"too much: from now on one tick every {sampler.period:g} s."
            )
            yield "backed_off", text

    def over_budget(self) -> float | None:
        """Return the cores taken when they are too many over a while; then it starts again."""
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

"""What one process has done since the recording began, whoever was in it: for the head and the end.

The store knows every tick, and forgets what ended between two of them; here is the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whyidle.agents import wire
from whyidle.monitor.link.records import Gauges, Steps
from whyidle.monitor.recording.spread import Spread
from whyidle.monitor.recording.stretches import Stretches

TOTALS = (
    wire.SAMPLES,
    wire.OPTIMIZER_NS,
    wire.LOADER_BATCHES,
    wire.LOADER_WAIT_NS,
    wire.SYNCS,
    wire.SYNC_NS,
    wire.READ_BYTES,
    wire.COMPILES,
    wire.COMPILE_NS,
    wire.COMPILE_HITS,
    wire.GC_NS,
)


class ProcessTotals:
    """The sums of one process."""

    def __init__(self) -> None:
        self.steps = 0
        # Who told of the last of them.
        self.source: str | None = None
        self._spread = Spread()
        self._stretches = Stretches()
        # Of each total: what it grew by, and in how long.
        self._grown: dict[str, tuple[float, float]] = {}
        self._last: dict[str, tuple[float, float]] = {}

    def begin(self) -> None:
        """Another agent tells from now on, and counts from its own start."""
        self._last.clear()
        self._stretches.begin()

    def take_steps(self, steps: Steps) -> None:
        """Count steps; of more than one kind of step the last kind counts."""
        if steps.source != self.source:
            self.steps, self._spread, self._stretches = 0, Spread(), Stretches()
        self.source = steps.source
        self.steps += steps.count
        if steps.durations:
            self._spread.add(steps.durations, steps.count / len(steps.durations))
        self._stretches.take(steps.t, steps.count, steps.durations)

    def take_gauges(self, gauges: Gauges) -> None:
        """Take in totals; they count from the first time that we saw them."""
        now = gauges.t / 1e9
        for name in TOTALS:
            total = gauges.values.get(name)
            if total is None or not 0 <= total < 2**63 or (name == wire.SAMPLES and not total):
                # Samples a second are over the time in which there were any to count.
                continue
            before = self._last.get(name, (now, total))
            self._last[name] = now, total
            if now < before[0] or total < before[1]:
                continue
            grown, seconds = self._grown.get(name, (0.0, 0.0))
            self._grown[name] = grown + total - before[1], seconds + now - before[0]

    def told(self) -> dict[str, Any]:
        """Return it as it is kept."""
        return {
            "steps": self.steps if self.source else None,
            "source": self.source,
            "step_p50_ns": _whole(self._spread.quantile(0.5)),
            "step_p95_ns": _whole(self._spread.quantile(0.95)),
            "stretches": self._stretches.told(),
            "totals": {
                name: [_whole(min(grown, 2.0**62)), round(seconds, 3)]
                for name, (grown, seconds) in self._grown.items()
                if seconds
            },
        }


def has_any(told: Mapping[str, Any]) -> bool:
    """Tell whether anything was counted at all."""
    return told["steps"] is not None or bool(told["totals"])


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)

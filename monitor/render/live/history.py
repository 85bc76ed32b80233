"""What the live view remembers of earlier ticks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.process import JobEvent
from whyidle.monitor.recording.faults import FINDING
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import numbers, plain

# As many as the widest screen shows.
TICKS: Final = 120
EVENTS: Final = 12
JOB: Final = ""
_OF_JOB: Final = (m.JOB_CPU, m.JOB_STEPS)

Values = Sequence[float | None]


class History:
    """The last values of a few metrics, and what happened."""

    def __init__(self) -> None:
        self.events: deque[tuple[str, plain.NewsLine]] = deque(maxlen=EVENTS)
        self._values: dict[tuple[str, Metric], deque[float | None]] = {}

    def remember(self, snapshot: Snapshot) -> None:
        """Keep what this tick brings."""
        # What was found stands above, with its line and its fix.
        shown = {finding.rule for finding in snapshot.findings}
        happened = tuple(e for e in snapshot.happened if _about(e) not in shown)
        for event in plain.news(replace(snapshot, happened=happened)):
            self.events.append((numbers.duration(snapshot.elapsed), event))
        for facts in snapshot.facts:
            self._keep(facts.index, m.GPU_UTILISATION, snapshot.gpus[facts.index].reading)
        for metric in _OF_JOB:
            self._keep(JOB, metric, snapshot.job)

    def of(self, metric: Metric, subject: str = JOB) -> Values:
        """Return the last values, the newest at the end."""
        return list(self._values.get((subject, metric), ()))

    def _keep(self, subject: str, metric: Metric, reading: Reading) -> None:
        kept = self._values.setdefault((subject, metric), deque(maxlen=TICKS))
        kept.append(reading.get(metric))


def _about(event: JobEvent) -> object:
    """Return the rule of a finding that is news."""
    return event.data.get("rule") if event.kind == FINDING and event.data else None

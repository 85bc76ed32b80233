"""How long the steps of one process take, and how many there are a second, over the last moments.

A record has some durations of the steps that it counts, evenly picked: each stands for as many.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from whyidle.agents import wire
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.link.records import Steps
from whyidle.monitor.recording.stats.event_limits import MOST_COUNTED
from whyidle.monitor.recording.stats.totals import quantiles
from whyidle.monitor.runs.training import LOOP

SECOND = 1_000_000_000
# What is said of "now": so long, or a few steps where they take longer, but no more than this.
WINDOW_NS = round(m.REACH_S) * SECOND
STEPS_SEEN = 3
LONGEST_WINDOW_NS = 120 * SECOND
# A record each second.
MOST_RECORDS = 150
MOST_LAGS = 5

NO_STEP = "no step has ended since the agent came"
NO_OPTIMIZER = "no optimizer has stepped and nothing marks steps: whyidle.step() does"
NO_MARK = "no mark of a step was seen: of JAX without marks only a trace tells the steps"
NONE_LATELY = "no step has ended lately"

SOURCES = (*wire.STEP_SOURCES, LOOP)
ONLY_MEANS = "turns of a loop are counted, and none is timed"

MEASURED = (m.PROCESS_STEPS, m.PROCESS_STEP_P50, m.PROCESS_STEP_P95)
_SHARES: dict[Metric, float] = {m.PROCESS_STEP_P50: 0.5, m.PROCESS_STEP_P95: 0.95}


class _Seen(NamedTuple):
    """One record: when, since when, how many steps, and some of their durations."""

    at_ns: int
    since_ns: int
    number: int
    durations: list[int]


class StepTimes:
    """Takes the steps of one process."""

    def __init__(self) -> None:
        # What marks the steps; ``None``: no step is known yet.
        self.source: str | None = None
        self.unit = 0
        # How far back "now" reaches.
        self.window_ns = WINDOW_NS
        # Since when these steps are counted: a pause after that is part of their time.
        self._since_ns = 0
        self._seen: deque[_Seen] = deque(maxlen=MOST_RECORDS)
        # How old the last new records were when they were looked at, and the newest of them.
        self._lags: deque[int] = deque([0], maxlen=MOST_LAGS)
        self._newest_ns = 0

    def take(self, steps: Steps, at_ns: int) -> bool:
        """Take in one record; returns whether it makes sense."""
        if steps.source not in SOURCES or not 0 < steps.count <= MOST_COUNTED:
            return False
        if steps.source == LOOP and self.source not in {None, LOOP}:
            # Something better counts.
            return False
        durations = [ns for ns in steps.durations if ns][: steps.count]
        span = steps.span_ns
        if (steps.source, steps.unit) != (self.source, self.unit):
            # Another kind of step: nobody counted before the first of them began.
            self.source, self.unit, self.window_ns = steps.source, steps.unit, WINDOW_NS
            self._seen.clear()
            self._lags = deque([0], maxlen=MOST_LAGS)
            self._since_ns = 0
            mean = sum(durations) / len(durations) if durations else span / steps.count
            span = min(span, round(mean * steps.count))
        # A step may have begun long before the look before this one.
        span = min(max(span, *durations, 0), LONGEST_WINDOW_NS)
        self._since_ns = self._since_ns or at_ns - span
        self._seen.append(_Seen(at_ns, at_ns - span, steps.count, durations))
        self.window_ns = min(max(WINDOW_NS, STEPS_SEEN * _middle(durations)), LONGEST_WINDOW_NS)
        return True

    def put(self, reading: Reading, now_ns: int, why_none: str) -> None:
        """Put what is known of the last moments, or why no step is known yet."""
        if self.source is None:
            reading.unknown.update(dict.fromkeys(MEASURED, why_none))
            return
        end = self._told_until(now_ns)
        begin = end - self.window_ns
        while self._seen and self._seen[0].at_ns <= begin:
            self._seen.popleft()
        known = quantiles(self._weighed(), list(_SHARES.values()))
        for metric, found in zip(_SHARES, known, strict=True):
            reading.put(metric, None if found is None else found / 1e9, NONE_LATELY)
        if self.source == LOOP and reading.values.pop(m.PROCESS_STEP_P95, None) is not None:
            reading.unknown[m.PROCESS_STEP_P95] = ONLY_MEANS
        reading.values[m.PROCESS_STEPS] = self._rate(begin, end)

    def _told_until(self, now_ns: int) -> int:
        """Return until when all is told: records come late, and a step takes its time."""
        if not self._seen:
            return now_ns
        last = self._seen[-1]
        if last.at_ns != self._newest_ns:
            self._newest_ns = last.at_ns
            self._lags.append(now_ns - last.at_ns)
        end = now_ns - max(self._lags)
        # Older than the records before it were is no pause yet.
        due = max(SECOND // 2, 2 * _middle(last.durations))
        return last.at_ns if 0 <= end - last.at_ns < due else end

    def _rate(self, begin: int, end: int) -> float:
        """Return the steps a second of this time; of a record at its edge the part inside."""
        begin = max(begin, self._since_ns)
        number = sum(
            seen.number
            * max(0, min(seen.at_ns, end) - max(seen.since_ns, begin))
            / max(1, seen.at_ns - seen.since_ns)
            for seen in self._seen
        )
        # Moments that a liar put in disorder.
        return number * 1e9 / max(end - begin, SECOND // 1000)

    def _weighed(self) -> list[tuple[float, float]]:
        weighed: list[tuple[float, float]] = []
        for seen in self._seen:
            weight = seen.number / max(1, len(seen.durations))
            weighed += [(ns, weight) for ns in seen.durations]
        return weighed


def _middle(durations: list[int]) -> int:
    return sorted(durations)[len(durations) // 2] if durations else 0

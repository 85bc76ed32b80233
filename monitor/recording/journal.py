"""What happened during a recording, into the store; what cannot be stored yet waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from whyidle.monitor.core.defects import Defects
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.processes.process import Identity, JobEvent, ProcessKey
from whyidle.monitor.recording.clock import WallClock
from whyidle.monitor.recording.pipeline import Guard
from whyidle.monitor.recording.rows import Subjects
from whyidle.monitor.recording.stats.event_limits import Quota
from whyidle.monitor.sources.gpu import GpuFacts
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.store import Writer


class Journal:
    """Writes the events of one run, and owns the guard that reports our own defects."""

    def __init__(
        self, writer: Writer, run: int, target: ProcessKey, subjects: Subjects, clock: WallClock
    ) -> None:
        self._writer = writer
        self._run = run
        self._subjects = subjects
        self._clock = clock
        self._quota = Quota(target)
        # Each with its own time: it may be stored ticks later.
        self._of_gpus: list[tuple[GpuEvent, int]] = []
        self._of_job: list[tuple[JobEvent, int]] = []
        self.defects = Defects(writer.path.parent, run)
        self.guard = Guard(self.defects, self._defect)

    def ms(self, now: float) -> int:
        """Return the name of this moment, once a leap of the wall clock is followed and noted."""
        if leapt := self._clock.follow():
            self._writer.leapt_ms += int(leapt * 1000)
            text = f"The clock leapt ahead by {leapt:.0f} s: the machine slept, or it was set."
            self._writer.event(self._run, "clock_leapt", text, severity="low")
        return self._clock.ms(now)

    def note(self, kind: str, text: str, severity: str = "low") -> str:
        """Store something about the recording itself; returns the text."""
        self._put(kind, text, severity, None, Scope.MONITOR, self._run)
        return text

    def of_gpus(
        self, events: Iterable[GpuEvent], facts: Mapping[str, GpuFacts], ts_ms: int
    ) -> tuple[GpuEvent, ...]:
        """Store what happened to the GPUs at a moment; returns what is stored now."""
        self._of_gpus += [(event, ts_ms) for event in events]
        stored = self.guard.store(self._of_gpus, lambda waiting: self._gpu(*waiting, facts))
        return tuple(event for event, _ in stored)

    def of_job(
        self,
        events: Iterable[JobEvent],
        known: Mapping[ProcessKey, Identity],
        *,
        ending: bool = False,
    ) -> tuple[JobEvent, ...]:
        """Store what happened in the job; returns what is stored now and is news."""
        now_ms = time.time_ns() // 1_000_000
        self._of_job += [
            (event, now_ms if event.at is None else self._clock.ms(event.at))
            for event in self._quota.admit(events, time.monotonic(), ending=ending)
        ]
        stored = self.guard.store(self._of_job, lambda waiting: self._job(*waiting, known))
        return tuple(event for event, _ in stored if event.is_news)

    def _gpu(self, event: GpuEvent, ts_ms: int, facts: Mapping[str, GpuFacts]) -> None:
        subject = self._subjects.gpu(facts[event.index])
        data = None if event.code is None else {"code": event.code}
        self._put(event.kind, event.text, event.severity, ts_ms, Scope.GPU, subject, data)

    def _job(self, event: JobEvent, ts_ms: int, known: Mapping[ProcessKey, Identity]) -> None:
        subject = self._subjects.process(event.key, known.get(event.key))
        self._put(event.kind, event.text, event.severity, ts_ms, Scope.PROCESS, subject, event.data)

    def _put(  # noqa: PLR0913, PLR0917  the columns of a row, in their order
        self,
        kind: str,
        text: str,
        severity: str,
        ts_ms: int | None,
        scope: Scope,
        subject: int | None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        self._writer.event(
            self._run,
            kind,
            text,
            severity=severity,
            ts_ms=ts_ms,
            scope=scope,
            subject=subject,
            data=data,
        )

    def _defect(self, where: str, error: Exception) -> None:
        """Store that something of a tick is missing, and why."""
        text = f"A tick failed in part ({where}: {type(error).__name__}: {error})."
        self._writer.event(self._run, "tick_failed", text, severity="medium")

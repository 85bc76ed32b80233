"""What happened while a job was recorded, into the store: what cannot be stored yet waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from whyidle.monitor.core.defects import Defects
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.processes.events import JobEvent
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.recording.clock import WallClock
from whyidle.monitor.recording.event_limits import Quota
from whyidle.monitor.recording.pipeline import Guard
from whyidle.monitor.recording.rows import Subjects
from whyidle.monitor.sources.gpu import GpuFacts
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.store import Writer


class Journal:
    """Writes the events of one recording, and has the guard that tells of our own defects."""

    def __init__(self, writer: Writer, run: int, target: ProcessKey, subjects: Subjects) -> None:
        self._writer = writer
        self._run = run
        self._subjects = subjects
        self._quota = Quota(target)
        self._of_gpus: list[GpuEvent] = []
        self._of_job: list[JobEvent] = []
        self.defects = Defects(writer.path.parent, run)
        self.guard = Guard(self.defects, self._defect)

    def note(self, kind: str, text: str, severity: str = "low") -> str:
        """Keep something about the recording itself; returns the text."""
        self._writer.event(
            self._run, kind, text, severity=severity, scope=Scope.MONITOR, subject=self._run
        )
        return text

    def of_gpus(
        self, events: Iterable[GpuEvent], facts: Mapping[str, GpuFacts], ts_ms: int
    ) -> tuple[GpuEvent, ...]:
        """Keep what happened to the GPUs; returns what is stored now."""
        self._of_gpus += events
        return self.guard.store(self._of_gpus, lambda event: self._gpu(event, facts, ts_ms))

    def of_job(
        self,
        events: Iterable[JobEvent],
        known: Mapping[ProcessKey, Identity],
        clock: WallClock,
        *,
        ending: bool = False,
    ) -> tuple[JobEvent, ...]:
        """Keep what happened in the job; returns what is stored now and is news."""
        self._of_job += self._quota.admit(events, time.monotonic(), ending=ending)
        stored = self.guard.store(self._of_job, lambda event: self._job(event, known, clock))
        return tuple(event for event in stored if event.is_news)

    def _gpu(self, event: GpuEvent, facts: Mapping[str, GpuFacts], ts_ms: int) -> None:
        self._writer.event(
            self._run,
            event.kind,
            event.text,
            severity=event.severity,
            ts_ms=ts_ms,
            scope=Scope.GPU,
            subject=self._subjects.gpu(facts[event.index]),
            data=None if event.code is None else {"code": event.code},
        )

    def _job(self, event: JobEvent, known: Mapping[ProcessKey, Identity], clock: WallClock) -> None:
        self._writer.event(
            self._run,
            event.kind,
            event.text,
            severity=event.severity,
            ts_ms=None if event.at is None else clock.ms(event.at),
            scope=Scope.PROCESS,
            subject=self._subjects.process(event.key, known.get(event.key)),
            data=event.data,
        )

    def _defect(self, where: str, error: Exception) -> None:
        """Keep that something of a tick is missing, and why."""
        said = f"A tick failed in part ({where}: {type(error).__name__}: {error})."
        self._writer.event(self._run, "tick_failed", said, severity="medium")

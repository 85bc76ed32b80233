"""What happened to the agents of a job, kept back where it is not worth a row for good.

A job may start workers for weeks that live a few seconds each: of those only the number is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from whyidle.monitor.processes.events import JobEvent
from whyidle.monitor.processes.naming import SETTLED_SECONDS
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.tracked_process import TrackedProcess

# A job of many workers must not fill the screen with the same sentence.
MOST_NEWS = 4
# What the agents tell of the job itself: its first compilations are worth a line each.
MOST_TOLD = 20
SHORT_LIVED, SHORT_LIVED_SECONDS = "short_lived", 60.0


class EventBuffer:
    """The events of one job that wait to be stored."""

    def __init__(self, root: ProcessKey) -> None:
        self._root = root
        self._events: list[JobEvent] = []
        self._told: Counter[str] = Counter()
        self._short_lived, self._short_lived_told = 0, float("-inf")

    def take(self) -> list[JobEvent]:
        """Return what happened since the last call."""
        events, self._events = self._events, []
        return events

    def add(self, events: Iterable[JobEvent]) -> None:
        """Take in what is told of the job itself; only the first of a kind are news."""
        for event in events:
            self._told[event.kind] += event.is_news
            news = event.is_news and self._told[event.kind] <= MOST_TOLD
            self._events.append(replace(event, is_news=news))

    def happened(  # noqa: PLR0913  the parts of an event
        self,
        kind: str,
        tracked: TrackedProcess,
        text: str,
        data: Mapping[str, object],
        *,
        now: float,
        severity: str = "info",
    ) -> None:
        """Tell what happened to a process, at once or when it turns out to stay."""
        if tracked.is_young:
            event = JobEvent(kind, tracked.key, text, severity, at=now, data=data)
            tracked.untold.append(event)
        else:
            self._tell(JobEvent(kind, tracked.key, text, severity, data=data))

    def tell_untold(self, tracked: TrackedProcess) -> None:
        """Tell what was held back of a process."""
        for event in tracked.untold:
            self._tell(event)
        tracked.untold.clear()

    def forget(self, tracked: TrackedProcess) -> None:
        """Count a process that went before anything was told of it."""
        self._short_lived += tracked.is_young and tracked.has_framework

    def count_short_lived(self, now: float) -> None:
        """Say now and then how many processes came and went of which nothing else is kept."""
        if not self._short_lived or now - self._short_lived_told < SHORT_LIVED_SECONDS:
            return
        several = "processes" if self._short_lived > 1 else "process"
        text = (
            f"{self._short_lived} {several} with a framework lived for less than"
            f" {SETTLED_SECONDS:.0f} s: of these only the number is kept."
        )
        data = {"count": self._short_lived}
        self._events.append(JobEvent(SHORT_LIVED, self._root, text, data=data, is_news=False))
        self._short_lived, self._short_lived_told = 0, now

    def _tell(self, event: JobEvent) -> None:
        self._told[event.kind] += 1
        self._events.append(replace(event, is_news=self._told[event.kind] <= MOST_NEWS))

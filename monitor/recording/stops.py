"""Processes of the job that something has stopped: Ctrl-Z, kill -STOP, a scheduler, a debugger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.processes.procfs import Stat
from whyidle.monitor.runs.summary import GOES_ON, STOPPED

# Of a job's hundred workers that Ctrl-Z stops the first ones say it.
MOST_TOLD = 8


class Stops:
    """Says who is stopped, and who goes on.

    Our own stops end within milliseconds, but one tick may fall into them: two in a row do not.
    """

    def __init__(self) -> None:
        # When each was first found so; ``None``: it was before we looked for the first time.
        self._since: dict[ProcessKey, float | None] | None = None
        self._told: set[ProcessKey] = set()

    def look(self, now: float, stats: Mapping[ProcessKey, Stat]) -> list[JobEvent]:
        """Return what has changed since the last tick."""
        before = self._since
        first = None if before is None else now
        since = {
            key: (before or {}).get(key, first) for key, stat in stats.items() if stat.is_stopped
        }
        self._since = since
        return [*self._go_on(since), *self._stay(since, before or {})]

    def _stay(
        self, since: Mapping[ProcessKey, float | None], before: Mapping[ProcessKey, float | None]
    ) -> Iterator[JobEvent]:
        for key in sorted(since.keys() & before.keys() - self._told):
            if len(self._told) >= MOST_TOLD:
                return
            self._told.add(key)
            text = f"Process {key.pid} is stopped. To let it go on: kill -CONT {key.pid}"
            data = {"pid": key.pid, "seen": since[key] is not None}
            yield JobEvent(STOPPED, key, text, "high", since[key], data)

    def _go_on(self, since: Mapping[ProcessKey, float | None]) -> Iterator[JobEvent]:
        for key in sorted(self._told - since.keys()):
            self._told.discard(key)
            yield JobEvent(GOES_ON, key, f"Process {key.pid} is stopped no more.", "low")

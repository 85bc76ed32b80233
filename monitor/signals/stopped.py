"""Processes of a job that are stopped at the end of a span, by Ctrl-Z, kill -STOP or a debugger."""

from __future__ import annotations

from dataclasses import dataclass

from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.runs.summary import GOES_ON, STOPPED
from whyidle.monitor.store import Event, Reader, Run


@dataclass(frozen=True, slots=True)
class Stopped:
    """Who is stopped, the first one first, and since when."""

    pids: tuple[int, ...]
    since_ms: int
    seconds: float
    # Whether it was seen to happen; else it had been so before anybody looked.
    seen: bool = True


def stopped_of(reader: Reader, run: Run, end_ms: int) -> Stopped | None:
    """Return who is stopped; ``None``: nobody is."""
    on = reader.subjects_of_events(run.id, GOES_ON, Scope.PROCESS)
    off = reader.subjects_of_events(run.id, STOPPED, Scope.PROCESS)
    events: list[Event] = []
    for subject, newest_ms in off.items():
        if newest_ms <= end_ms and on.get(subject, -1) < newest_ms:
            events += reader.events_of(run.id, STOPPED, Scope.PROCESS, subject, 1)
    events.sort(key=lambda event: (event.ts_ms, event.id))
    pids = tuple(pid for e in events if isinstance(pid := (e.data or {}).get("pid"), int))
    if not pids:
        return None
    first = events[0]
    return Stopped(
        pids, first.ts_ms, (end_ms - first.ts_ms) / 1000, bool((first.data or {}).get("seen"))
    )

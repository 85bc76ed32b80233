"""Where the main thread of the job was around a moment of a trace, as the recording has it."""

from __future__ import annotations

from dataclasses import dataclass

from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.runs.summary import STACKS, add_up
from whyidle.monitor.store import Event, Reader
from whyidle.monitor.store.stored_traces import KeptTrace

_NEWEST = 4000


@dataclass(frozen=True, slots=True)
class Looks:
    """What was seen in the looks at one thread that were kept together."""

    samples: int
    seconds: float
    lines: tuple[SourceLine, ...]


def looks_at(reader: Reader, trace: KeptTrace, at: int) -> Looks | None:
    """Return the looks around a moment of a trace; nothing where nobody looked just then."""
    if trace.run is None or trace.origin_ns is None or trace.taken is None:
        return None
    ts_ms = (trace.origin_ns + at // trace.ticks_per_ns) / 1e6
    for process in reader.processes(trace.run, trace.taken.get("pid")):
        kept = reader.events_of(trace.run, STACKS, Scope.PROCESS, process.id, _NEWEST)
        for event in kept:
            if _holds(event, ts_ms):
                data = event.data or {}
                found = add_up([data], "lines")
                return Looks(data["samples"], data["seconds"], found) if found else None
    return None


def _holds(event: Event, ts_ms: float) -> bool:
    """Tell whether a moment is among those that an event tells of."""
    seconds = (event.data or {}).get("seconds")
    return isinstance(seconds, int | float) and 0 <= event.ts_ms - ts_ms <= seconds * 1000

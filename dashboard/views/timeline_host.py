"""What a host thread did during part of a trace, and which of its calls launched an operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.runs import stacks
from whyidle.monitor.runs.summary import STACKS
from whyidle.monitor.store import Event, Reader
from whyidle.monitor.store.stored_traces import KeptTrace, Timeline
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Ints, Spans
from whyidle.monitor.traces.where.nesting import NONE, nest, portions

_DID_MOST: Final = 8
_STACK_MOST: Final = 30
_NEWEST: Final = 4000


@dataclass(frozen=True, slots=True)
class HostEventTotal:
    """The total of one kind of host event during part of a trace."""

    name: str
    cause: Cause
    count: int
    # Ticks in which it was innermost, and in which it was open at all.
    own: int
    open: int


@dataclass(frozen=True, slots=True)
class Launch:
    """The call that launched an operation."""

    name: str
    thread: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class HostActivity:
    """What a thread did during part of a trace."""

    # The one with most time of its own first.
    totals: Sequence[HostEventTotal] = ()
    # What was open in its longest part, the innermost first.
    stack: Sequence[str] = ()


def activity(timeline: Timeline, thread: int, start: int, end: int) -> HostActivity:
    """Return what a thread did between two ticks."""
    spans = _overlapping(timeline.host, thread, start, end)
    if not len(spans):
        return HostActivity()
    nested = nest(spans.start, spans.end)
    _, labels, ticks = portions(np.array([start]), np.array([end]), nested.innermost)
    held = labels != NONE
    own = np.zeros(len(spans), np.int64)
    np.add.at(own, labels[held], ticks[held])
    totals = _by_name(timeline, spans, own, _Inside.of(spans, nested.parent, start, end))
    if not held.any():
        return HostActivity(totals)
    longest = int(labels[held][int(ticks[held].argmax())])
    return HostActivity(totals, _stack(timeline, spans, nested.parent, longest))


@dataclass(frozen=True, slots=True)
class _Inside:
    """How spans nest, and how much of each lies in the window."""

    parent: list[int]
    ticks: list[int]

    @classmethod
    def of(cls, spans: Spans, parent: Ints, start: int, end: int) -> _Inside:
        ticks = np.minimum(spans.end, end) - np.maximum(spans.start, start)
        return cls(parent.tolist(), ticks.tolist())


def _overlapping(host: Spans, thread: int, start: int, end: int) -> Spans:
    """Return the spans of a thread in a window, sorted for ``nest``."""
    rows = (host.thread == thread) & (host.start < end) & (host.end > start)
    some = host.take(rows & (host.end > host.start))
    return some.take(np.lexsort((-some.end, some.start)))


def _by_name(timeline: Timeline, spans: Spans, own: Ints, inside: _Inside) -> list[HostEventTotal]:
    """Add up spans by name; a span inside its own kind is not counted twice."""
    found: dict[tuple[int, int], list[int]] = {}
    keys = list(zip(spans.name.tolist(), spans.kind.tolist(), strict=True))
    for row, key in enumerate(keys):
        counted = found.setdefault(key, [0, 0, 0])
        counted[0] += 1
        counted[1] += int(own[row])
        up = inside.parent[row]
        while up != NONE and keys[up] != key:
            up = inside.parent[up]
        counted[2] += inside.ticks[row] if up == NONE else 0
    order = sorted(found.items(), key=lambda pair: (-pair[1][1], -pair[1][2]))
    return [
        HostEventTotal(timeline.names[name], Cause(max(kind, 0)), *counted)
        for (name, kind), counted in order[:_DID_MOST]
        if counted[1]
    ]


def _stack(timeline: Timeline, spans: Spans, parent: Ints, row: int) -> list[str]:
    found: list[str] = []
    while row != NONE and len(found) < _STACK_MOST:
        found.append(timeline.names[int(spans.name[row])])
        row = int(parent[row])
    return found


def launch_of(timeline: Timeline, device: int, row: int) -> Launch | None:
    """Return the call that launched an operation; ``None`` if the trace shows none."""
    calls, host = timeline.calls, timeline.host
    id_ = int(timeline.lanes[device].ops.correlation[row])
    rows = calls.row[calls.id == id_] if id_ >= 0 else calls.row[:0]
    pid = timeline.trace.answer["devices"][device].get("pid")
    pids = [timeline.trace.threads[t].pid for t in host.thread[rows].tolist()]
    own = [r for r, p in zip(rows.tolist(), pids, strict=True) if pid is None or p in {pid, None}]
    mine = own or rows.tolist()
    if not mine:
        return None
    call = min(mine, key=lambda r: int(host.start[r]))
    return Launch(
        name=timeline.names[int(host.name[call])],
        thread=int(host.thread[call]),
        start=int(host.start[call]),
        end=int(host.end[call]),
    )


# Stack samples of the recording -------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class StackSamples:
    """Stack samples of one thread that were stored together."""

    samples: int
    seconds: float
    lines: tuple[SourceLine, ...]


def samples_at(reader: Reader, trace: KeptTrace, at: int) -> StackSamples | None:
    """Return the samples around a moment of a trace; ``None`` if there are none."""
    if trace.run is None or trace.origin_ns is None or trace.taken is None:
        return None
    ts_ms = (trace.origin_ns + at // trace.ticks_per_ns) / 1e6
    for process in reader.processes(trace.run, trace.taken.get("pid")):
        kept = reader.events_of(trace.run, STACKS, Scope.PROCESS, process.id, _NEWEST)
        for event in kept:
            if _covers(event, ts_ms):
                data = event.data or {}
                found = stacks.StackSamples.of_events([data]).lines()
                return StackSamples(data["samples"], data["seconds"], found) if found else None
    return None


def _covers(event: Event, ts_ms: float) -> bool:
    """Return whether a moment lies within the seconds of an event."""
    seconds = (event.data or {}).get("seconds")
    return isinstance(seconds, int | float) and 0 <= event.ts_ms - ts_ms <= seconds * 1000

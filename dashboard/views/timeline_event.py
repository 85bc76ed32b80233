"""Details of one operation of a device, or one event of a host thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from whyidle.dashboard.views.timeline import device_names, ns
from whyidle.dashboard.views.timeline_host import HostActivity, activity, launch_of
from whyidle.monitor.core.contracts.trace import TraceJson
from whyidle.monitor.render.budget import clock, share
from whyidle.monitor.render.numbers import scaled, size
from whyidle.monitor.store.stored_traces import Kept, KeptTrace, Timeline
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Ints

_READ_MOST: Final = 60_000
# How long before the operation its launch is looked for.
_LAUNCHED_NS: Final = 50_000_000


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """The clicked item."""

    name: str
    start: int
    end: int
    cause: Cause
    # Name and value, as text.
    facts: Sequence[tuple[str, str]]
    # What ran inside a host event.
    activity: HostActivity


@dataclass(frozen=True, slots=True)
class EventRef:
    """A reference to an event: its device or thread, and its time in ticks."""

    of: int
    start: int
    end: int


def operation(store: Path, number: int, wanted: EventRef) -> TraceEvent | None:
    """Return an operation of a device; ``None`` if there is none at that time."""
    with Kept.open(store) as kept:
        trace = kept.open_trace(number)
        early = _LAUNCHED_NS * trace.ticks_per_ns
        timeline = kept.window(number, wanted.start - early, wanted.end + 1, _READ_MOST, clip=False)
        if wanted.of >= len(timeline.lanes):
            return None
        ops = timeline.lanes[wanted.of].ops
        row = _nearest(ops.start, ops.end, wanted, trace)
        if row is None:
            return None
        name = timeline.names[int(ops.name[row])]
        facts = [*_of_operation(timeline, wanted.of, row), *_in_all(trace.answer, name)]
        cause = Cause(max(int(ops.kind[row]), 0))
        return TraceEvent(
            name, int(ops.start[row]), int(ops.end[row]), cause, facts, HostActivity()
        )


def host_event(store: Path, number: int, wanted: EventRef) -> TraceEvent | None:
    """Return an event of a host thread; ``None`` if there is none at that time."""
    with Kept.open(store) as kept:
        trace = kept.open_trace(number)
        if wanted.of >= len(trace.threads):
            return None
        timeline = kept.window(number, wanted.start, wanted.end + 1, _READ_MOST, clip=False)
        host = timeline.host.take(timeline.host.thread == wanted.of)
        row = _nearest(host.start, host.end, wanted, trace)
        if row is None:
            return None
        start, end = int(host.start[row]), int(host.end[row])
        facts = [
            ("thread", trace.threads[wanted.of].label),
            ("begins", f"{clock(ns(trace, start - trace.start))} into the trace"),
            ("took", clock(ns(trace, end - start))),
        ]
        found = activity(timeline, wanted.of, start, end)
        cause = Cause(max(int(host.kind[row]), 0))
        return TraceEvent(timeline.names[int(host.name[row])], start, end, cause, facts, found)


def _nearest(start: Ints, end: Ints, wanted: EventRef, trace: KeptTrace) -> int | None:
    """Return the row with these times, which a link rounds to nanoseconds."""
    if not len(start):
        return None
    off = np.abs(start - wanted.start) + np.abs(end - wanted.end)
    row = int(off.argmin())
    return row if off[row] <= 2 * trace.ticks_per_ns else None


def _of_operation(timeline: Timeline, device: int, row: int) -> Iterator[tuple[str, str]]:
    trace, ops = timeline.trace, timeline.lanes[device].ops
    start, end = int(ops.start[row]), int(ops.end[row])
    took = ns(trace, end - start)
    yield "on", device_names(trace.answer)[device]
    if stream := timeline.names[int(ops.stream[row])]:
        yield "stream", stream
    yield "begins", f"{clock(ns(trace, start - trace.start))} into the trace"
    yield "took", clock(took)
    moved = int(ops.bytes[row])
    if moved >= 0:
        speed = f", {scaled(moved / took * 1e9, 'B/s')}" if took else ""
        yield "moved", f"{size(moved)}{speed}"
    launch = launch_of(timeline, device, row)
    if launch is not None:
        yield "launched by", f"{launch.name} of {trace.threads[launch.thread].label}"
        yield "waited after its launch", clock(max(0, ns(trace, start - launch.end)))
    for title, column in (("HLO operation", ops.hlo_op), ("HLO module", ops.hlo_module)):
        if name := timeline.names[int(column[row])]:
            yield title, name


def _in_all(answer: TraceJson, name: str) -> Iterator[tuple[str, str]]:
    """Yield how often it ran in the whole trace, and for how long."""
    found = [*(answer.get("top_kernels") or ()), *(answer.get("top_operators") or ())]
    entry = next((each for each in found if each["name"] == name), None)
    if entry is None:
        return
    compute = answer["budget"]["slices"].get("compute", 0)
    yield "in all of the trace", f"{entry['count']:,} times, {clock(entry['total_ns'])}"
    yield "of all compute", share(entry["total_ns"], compute)

"""Why a device was idle: what the host did meanwhile, and which launch was late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from whyidle.dashboard.views.timeline_host import HostActivity, Launch, activity, launch_of
from whyidle.monitor.core.contracts.trace import OwnerJson, TraceJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.store.stored_traces import Kept, KeptTrace, Timeline
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.model import Ops

_IDLE: Final = np.array([cause.slice.idle for cause in Cause])
_FIRST_LOOK_NS: Final = 1_000_000
_FURTHER: Final = 4
# A launch is looked for this long before the gap, or as long as the gap is.
_LAUNCHED_NS: Final = 10_000_000
_READ_MOST: Final = 60_000


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a device was idle."""

    device: int
    start: int
    end: int
    # Ticks by cause, the longest first.
    parts: Sequence[tuple[Cause, int]]
    # The thread that the device waited for; ``None`` if unknown.
    thread: str | None
    activity: HostActivity
    # What ran next, and its launch; ``None`` if the trace does not show it.
    then: str | None
    launch: Launch | None
    unknown: str | None = None

    @property
    def ticks(self) -> int:
        """How long it is."""
        return self.end - self.start

    @property
    def slice(self) -> Slice:
        """The slice to which most of it belongs."""
        time: dict[Slice, int] = {}
        for cause, ticks in self.parts:
            time[cause.slice] = time.get(cause.slice, 0) + ticks
        return max(time, key=lambda part: time[part])


def gap_at(store: Path, trace: KeptTrace, device: int, at: int) -> Gap | None:
    """Return the gap of a device around a moment; ``None`` if it was busy then."""
    if not 0 <= device < len(trace.answer["devices"]):
        return None
    with Kept.open(store) as kept:
        found = _segments(kept, trace, device, at)
        if found is None:
            return None
        start, end = int(found.start[0]), int(found.end[-1])
        before = max(end - start, _LAUNCHED_NS * trace.ticks_per_ns)
        timeline = kept.window(trace.id, start - before, end + 1, _READ_MOST, clip=False)
        return _describe(trace, timeline, device, found)


def _segments(kept: Kept, trace: KeptTrace, device: int, at: int) -> Segments | None:
    """Return the segments of the gap around a moment, reading on until both ends are found."""
    reach = _FIRST_LOOK_NS * trace.ticks_per_ns
    while True:
        first, last = max(trace.start, at - reach), min(trace.end, at + reach) + 1
        segments = kept.account(trace.id, first, max(last, first + 1), clip=False)[device]
        here = int(np.searchsorted(segments.end, at, "right"))
        if here >= len(segments) or segments.start[here] > at or not _IDLE[segments.cause[here]]:
            return None
        busy = np.flatnonzero(~_IDLE[segments.cause])
        before, after = busy[busy < here], busy[busy > here]
        left, right = len(before) or first <= trace.start, len(after) or last > trace.end
        if left and right:
            begin = int(before[-1]) + 1 if len(before) else 0
            return segments.take(slice(begin, int(after[0]) if len(after) else len(segments)))
        reach *= _FURTHER


def _describe(trace: KeptTrace, timeline: Timeline, device: int, segments: Segments) -> Gap:
    start, end = int(segments.start[0]), int(segments.end[-1])
    ops = timeline.lanes[device].ops
    row = _next(ops, end)
    launch = None if row is None else launch_of(timeline, device, row)
    thread = _thread(segments, timeline, launch)
    found = HostActivity() if thread is None else activity(timeline, thread, start, end)
    silent = None if found.totals else "the trace has no event of it in this stretch"
    return Gap(
        device=device,
        start=start,
        end=end,
        parts=_parts(segments),
        thread=None if thread is None else trace.threads[thread].label,
        activity=found,
        then=None if row is None else timeline.names[int(ops.name[row])],
        launch=launch,
        unknown="the trace names no host thread" if thread is None else silent,
    )


def _parts(segments: Segments) -> list[tuple[Cause, int]]:
    ticks = np.bincount(segments.cause, weights=segments.end - segments.start)
    found = [(Cause(i), int(ticks[i])) for i in np.flatnonzero(ticks).tolist()]
    return sorted(found, key=lambda part: -part[1])


def _next(ops: Ops, end: int) -> int | None:
    rows = np.flatnonzero(ops.start == end)
    return int(rows[0]) if len(rows) else None


def _thread(segments: Segments, timeline: Timeline, launch: Launch | None) -> int | None:
    """Return the thread that the device waited for, else that of the launch, else the main one."""
    waits = segments.thread >= 0
    if waits.any():
        ticks = (segments.end - segments.start)[waits]
        return int(np.bincount(segments.thread[waits], weights=ticks).argmax())
    if launch is not None:
        return launch.thread
    threads = timeline.trace.threads
    return next((i for i in present(timeline.host.thread) if threads[i].main), None)


def lines_of(answer: TraceJson, part: Slice) -> list[OwnerJson]:
    """Return the lines of user code that cause a slice, the costliest first."""
    return [place for place in answer.get("where") or [] if place.get("slice") == part]

"""The lanes of a window: rows of pieces, no more than a person can distinguish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np

from whyidle.dashboard.views.timeline import TickRange, device_names, ranks_of
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.store.stored_traces import Kept, KeptTrace, Timeline
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.model import Ints, Ops, Spans
from whyidle.monitor.traces.pieces import MergedPieces, depths, merge_to_fit

# How many events of each table are read for a picture, the longest ones.
READ_MOST: Final = 60_000
# A browser draws this many pieces in well under a second.
DRAWN_MOST: Final = 2000
STEPS_MOST: Final = 200
STREAMS_MOST: Final = 6
STREAM_LINES: Final = 3
# Lanes for the first thread, and for each other one.
HOST_LINES: Final = (9, 3)
THREADS_MOST: Final = 4
# An event that covers this much of a window is named in a note instead of drawn.
ALL_OF_IT: Final = 0.95

_T = TypeVar("_T", Ops, Spans)
What = Literal["step", "rank", "idle", "work", "host"]
_IDLE: Final = np.array([cause.slice is not Slice.COMPUTE for cause in Cause])


@dataclass(frozen=True, slots=True)
class LaneHeader:
    """What a lane is about."""

    what: What
    # Whose lane it is ("GPU 0", a thread), and which of its lanes.
    group: str
    name: str
    # The number of the device or thread.
    of: int


@dataclass(slots=True)
class Lane:
    """One lane of the picture."""

    header: LaneHeader
    merged: MergedPieces
    # The name of the longest event in each piece.
    names: list[str]
    # Start and end of the longest event in each piece.
    starts: Ints
    ends: Ints


@dataclass(slots=True)
class Picture:
    """Everything that is drawn of a window."""

    trace: KeptTrace
    part: TickRange
    lines: list[Lane]
    steps: list[tuple[int, TickRange]]
    # Events that cover the whole window, by thread: names, the outermost first.
    around: dict[str, list[str]]
    # What is not drawn, as text.
    notes: list[str]
    # When the last rank came to a collective.
    came: Sequence[int] = ()


@dataclass(slots=True)
class _Rows:
    """Rows that become a lane."""

    header: LaneHeader
    table: Ops | Spans | Segments
    kind: Ints


@dataclass(slots=True)
class _Builder:
    """Builds a picture from what was read."""

    trace: KeptTrace
    part: TickRange
    timeline: Timeline
    account: Sequence[Segments]
    operations: Sequence[Ops]
    devices: Sequence[int]
    all_threads: bool
    around: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def rows(self) -> Iterator[_Rows]:
        for device in self.devices:
            group = device_names(self.trace.answer)[device]
            segments = self.account[device]
            if ranks_of(self.trace) is not None:
                header = LaneHeader("rank", group, "", device)
                yield _Rows(header, segments, segments.cause.astype(np.int64))
                yield from self._work(device, group)
                continue
            idle = segments.take(_IDLE[segments.cause])
            yield _Rows(
                LaneHeader("idle", group, "why idle", device), idle, idle.cause.astype(np.int64)
            )
            yield from self._work(device, group)
        yield from self._host()

    def _work(self, device: int, group: str) -> Iterator[_Rows]:
        ops = _real(self.operations[device])
        streams = present(ops.stream)
        time = {s: int((ops.end - ops.start)[ops.stream == s].sum()) for s in streams}
        shown = set(sorted(streams, key=lambda s: -time[s])[:STREAMS_MOST])
        if len(streams) > len(shown):
            self.notes.append(
                f"{group} has {len(streams)} streams: the {len(shown)} busiest are shown"
            )
        for stream in (s for s in streams if s in shown):
            of = ops.take(ops.stream == stream)
            label = self.timeline.names[stream] or "work"
            yield from _lanes(LaneHeader("work", group, _stream(label), device), of, STREAM_LINES)

    def _host(self) -> Iterator[_Rows]:
        host = _real(self.timeline.host)
        threads = self._threads(host)
        for place, thread in enumerate(threads):
            of = host.take(host.thread == thread)
            outside = of.end - of.start >= ALL_OF_IT * self.part.ticks
            label = self.trace.threads[thread].label
            if outside.any():
                names = [self.timeline.names[i] for i in of.name[outside].tolist()]
                self.around[label] = names
                of = of.take(~outside)
            most = HOST_LINES[min(place, 1)]
            yield from _lanes(LaneHeader("host", label, "", thread), of, most)

    def _threads(self, host: Spans) -> list[int]:
        """Return the threads: first those the devices wait for, then the busiest."""
        waits = np.zeros(len(self.trace.threads) + 1, np.int64)
        for device in self.devices:
            s = self.account[device]
            np.add.at(waits, s.thread, s.end - s.start)
        did = np.bincount(host.thread, minlength=len(self.trace.threads)) if len(host) else waits
        threads = present(host.thread)
        order = sorted(
            threads, key=lambda t: (-int(waits[t]), not self.trace.threads[t].main, -int(did[t]))
        )
        if self.all_threads or len(order) <= THREADS_MOST:
            return order
        self.notes.append(f"of {len(order)} threads the {THREADS_MOST} most relevant are shown")
        return order[:THREADS_MOST]


def picture(
    store: Path, trace: int, part: TickRange, devices: Sequence[int], *, all_threads: bool = False
) -> Picture:
    """Return the lanes of a window of a stored trace."""
    with Kept.open(store) as kept:
        is_job = ranks_of(kept.open_trace(trace)) is not None
        timeline = kept.window(trace, part.start, part.end, 1 if is_job else READ_MOST)
        account = kept.account(trace, part.start, part.end)
        # The collectives of the late rank are the shortest of all: none is left out.
        all_ = kept.operations(trace, part.start, part.end) if is_job else None
        operations = all_ or [lane.ops for lane in timeline.lanes]
        steps = sorted(kept.steps(trace))
        builder = _Builder(
            timeline.trace, part, timeline, account, operations, devices, all_threads
        )
        rows = list(builder.rows())
        columns = [(row.table.start, row.table.end, row.kind) for row in rows]
        merged = merge_to_fit(columns, part.ticks, DRAWN_MOST)
        lines = [_lane(timeline, row, some) for row, some in zip(rows, merged, strict=True)]
    notes = [*builder.notes, *(() if is_job else _left_out(timeline))]
    return Picture(timeline.trace, part, lines, _shown(steps, part), builder.around, notes)


def _shown(steps: Sequence[tuple[int, int]], part: TickRange) -> list[tuple[int, TickRange]]:
    """Return the steps in a window, with their numbers."""
    found = [
        (i, TickRange(max(start, part.start), min(end, part.end)))
        for i, (start, end) in enumerate(steps, 1)
        if start < part.end and end > part.start
    ]
    # More would blur into one colour.
    return found if len(found) <= STEPS_MOST else []


def _lanes(header: LaneHeader, table: Ops | Spans, most: int) -> Iterator[_Rows]:
    depth = depths(table.start, table.end)
    for line in range(min(most, int(depth.max(initial=-1)) + 1)):
        rows = table.take(depth == line)
        kind = np.maximum(rows.kind, 0).astype(np.int64)
        yield _Rows(header if line == 0 else replace(header, name=""), rows, kind)


def _lane(timeline: Timeline, rows: _Rows, merged: MergedPieces) -> Lane:
    main, table = merged.main, rows.table
    if isinstance(table, Segments):
        names = [Cause(code).words for code in table.cause[main].tolist()]
    else:
        names = [timeline.names[i] for i in table.name[main].tolist()]
    return Lane(rows.header, merged, names, table.start[main], table.end[main])


def _real(table: _T) -> _T:
    """Drop rows without length, and sort the rest by time, the longer first."""
    some = table.take(table.end > table.start)
    return some.take(np.lexsort((-some.end, some.start)))


def _left_out(timeline: Timeline) -> Iterator[str]:
    words = {"op": "operations", "span": "host events"}
    for table, name in words.items():
        if left := timeline.left_out[table]:
            yield f"the shortest {name}, at most {left:,}, are not drawn: zoom in to see them"
    if timeline.lost:
        yield f"{timeline.lost} pieces of the stored timeline are damaged and missing"


def _stream(label: str) -> str:
    return f"stream {label}" if label.isdecimal() else label

"""A trace as Chrome JSON, for ui.perfetto.dev: our account of each device above what it did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, TextIO

import numpy as np

from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.traces.analysis import Analysis, DeviceReport
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.chrome import ChromeEvents, Track, named_group, named_track
from whyidle.monitor.traces.model import Ints, Ops, Spans, Thread

# Rows that are Python objects at once: the file may be larger than memory.
ROWS: Final = 20_000
STEPS, FIRST_DEVICE = 1, 2
WHY: Final = 1
# Lines that a stream or a thread keeps free for what would cross on its first one.
APART: Final = 100
# Nobody looks at more; what does not fit goes to the last one.
MOST_LANES: Final = 50
# The colours that the format knows, for viewers that use them.
_COLOURS: Final = {
    Slice.EXPOSED_COMM: "rail_load",
    Slice.EXPOSED_COPY: "rail_animation",
    Slice.IDLE_INPUT: "terrible",
    Slice.IDLE_DISPATCH: "bad",
    Slice.IDLE_QUEUE: "yellow",
    Slice.IDLE_ALLOC: "rail_response",
    Slice.IDLE_COMPILE: "rail_idle",
    Slice.IDLE_SYNC: "vsync_highlight_color",
    Slice.IDLE_GC: "detailed_memory_dump",
    Slice.IDLE_IO: "olive",
    Slice.IDLE_OTHER_PROCESS: "black",
    Slice.IDLE_UNKNOWN: "grey",
}


def write(out: TextIO, analysis: Analysis) -> None:
    """Write everything, one event a line, as it is worked out."""
    origin = analysis.trace.origin_ns
    out.write('{"displayTimeUnit":"ns",')
    if origin is not None:
        out.write(f'"baseTimeNanoseconds":{origin},')
    out.write('"traceEvents":[\n')
    between = ""
    for line in _Writer(analysis).lines():
        out.write(f"{between}{line}")
        between = ",\n"
    out.write("\n]}\n")


class _Writer:
    """What all lines need to know of the trace."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._names = [json.dumps(name) for name in analysis.trace.names]
        self._threads = analysis.trace.threads
        self._chrome = ChromeEvents(analysis.trace.ticks_per_ns)
        first_host = FIRST_DEVICE + len(analysis.devices)
        pids = list(dict.fromkeys(thread.pid for thread in self._threads))
        self._hosts = {pid: first_host + i for i, pid in enumerate(pids)}

    def lines(self) -> Iterator[str]:
        """Yield every event."""
        yield from self._steps()
        for group, report in enumerate(self._analysis.devices, FIRST_DEVICE):
            yield from self._device(group, report)
        yield from self._host()

    def _steps(self) -> Iterator[str]:
        steps, track = self._analysis.steps, Track(STEPS, 1)
        if not len(steps.start):
            return
        yield from named_group(STEPS, "steps")
        yield from named_track(track, "steps")
        for number, (start, end) in enumerate(_rows(steps.start, steps.end), 1):
            yield self._chrome.span(track, start, end, f'"name":"step {number}","cat":"step"')

    def _device(self, group: int, report: DeviceReport) -> Iterator[str]:
        device, ops = report.device, report.device.ops
        rank = "" if device.rank is None else f" rank {device.rank}"
        where = "" if device.host is None else f" on {device.host}"
        yield from named_group(group, f"{device.kind.upper()} {device.index}{rank}{where}")
        yield from named_track(Track(group, WHY), "why idle")
        yield from self._why(Track(group, WHY), report.budget.segments)
        line = np.zeros(len(ops), np.int64)
        for at, stream in enumerate(np.unique(ops.stream).tolist(), 1):
            rows = np.flatnonzero(ops.stream == stream)
            line[rows] = APART * at + lanes(ops.start[rows], ops.end[rows])
            yield from _named_lines(group, line[rows], self._stream(stream))
        yield from self._spans(group, line, ops)
        yield from self._arrows(group, line, report)

    def _stream(self, stream: int) -> str:
        label = self._analysis.trace.names[stream] if stream >= 0 else "work"
        return f"stream {label}" if label.isdecimal() else label

    def _why(self, track: Track, segments: Segments) -> Iterator[str]:
        """Yield the account without compute: what is empty on this track is well spent."""
        columns = (segments.start, segments.end, segments.cause, segments.thread)
        for start, end, code, thread in _rows(*columns):
            cause = Cause(code)
            if cause.slice is Slice.COMPUTE:
                continue
            event = {
                "name": f"{LOOKS[cause.slice].words}: {cause.words}",
                "cat": cause.slice,
                "cname": _COLOURS[cause.slice],
                "args": {"waits for": self._threads[thread].label} if thread >= 0 else {},
            }
            yield self._chrome.span(track, start, end, json.dumps(event)[1:-1])

    def _host(self) -> Iterator[str]:
        host = self._analysis.trace.host
        for pid, group in self._hosts.items():
            yield from named_group(group, "host" if pid is None else f"host process {pid}")
        by_thread = np.argsort(host.thread, kind="stable")
        edges = np.searchsorted(host.thread[by_thread], np.arange(len(self._threads) + 1))
        for at, thread in enumerate(self._threads):
            spans = host.take(by_thread[edges[at] : edges[at + 1]])
            group, first = self._track_of(at)
            line = first + lanes(spans.start, spans.end)
            yield from _named_lines(group, line, _thread_label(thread))
            yield from self._spans(group, line, spans)

    def _track_of(self, thread: int) -> Track:
        return Track(self._hosts[self._threads[thread].pid], APART * (thread + 1))

    def _spans(self, group: int, lines: Ints, table: Ops | Spans) -> Iterator[str]:
        columns = (lines, table.start, table.end, table.name, table.kind)
        for line, start, end, name, kind in _rows(*columns):
            label = self._names[name] if name >= 0 else '"?"'
            cause = Cause(kind).name.lower() if kind >= 0 else "host"
            fields = f'"name":{label},"cat":"{cause}"'
            yield self._chrome.span(Track(group, line), start, end, fields)

    def _arrows(self, group: int, lines: Ints, report: DeviceReport) -> Iterator[str]:
        """Yield an arrow from each call that launched work to the work."""
        known = np.flatnonzero((report.launches.start >= 0) & (report.launches.thread >= 0))
        launches, begins = report.launches.take(known), report.device.ops.start[known]
        for at, thread, line, begin in _rows(launches.start, launches.thread, lines[known], begins):
            end = (Track(group, line), begin)
            yield from self._chrome.arrow("launch", (self._track_of(thread), at), end)


def _thread_label(thread: Thread) -> str:
    return thread.label or f"thread {thread.tid}"


def _named_lines(group: int, used: Ints, name: str) -> Iterator[str]:
    for line in np.unique(used).tolist():
        yield from named_track(Track(group, line), name)


def _rows(*columns: Any) -> Iterable[tuple[int, ...]]:
    """Yield rows of plain numbers, never all of them at once."""
    for at in range(0, len(columns[0]), ROWS):
        yield from zip(*(c[at : at + ROWS].tolist() for c in columns), strict=True)


def lanes(start: Ints, end: Ints) -> Ints:
    """Return a lane for each span; they are sorted by start, and the longer of two comes first."""
    found = np.zeros(len(start), np.int64)
    if len(start) < 2 or (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return found
    # The ends of what is open on each lane, the innermost last.
    stacks: list[list[int]] = [[]]
    for at, (begin, last) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        found[at] = lane = _free_lane(stacks, begin, last)
        stacks[lane].append(last)
    return found


def _free_lane(stacks: list[list[int]], begin: int, end: int) -> int:
    """Return the first lane where a span crosses nothing; a new one if there is none."""
    for lane, stack in enumerate(stacks):
        while stack and stack[-1] <= begin:
            stack.pop()
        if not stack or end <= stack[-1]:
            return lane
    if len(stacks) < MOST_LANES:
        stacks.append([])
    return len(stacks) - 1

"""A trace as Chrome JSON, for ui.perfetto.dev: our account of each device above what it did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TextIO

import numpy as np

from whyidle.monitor.slices import LOOKS, Slice
from whyidle.monitor.traces.analysis import Analysis, DeviceReport
from whyidle.monitor.traces.budget import Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.lanes import lanes
from whyidle.monitor.traces.model import Ids, Ints, Thread, Trace

# Rows that are Python objects at once: the file may be longer than the memory.
ROWS: Final = 20_000
STEPS, FIRST_DEVICE = 1, 2
WHY: Final = 1
# Numbers that a track keeps free for lanes of its own.
APART: Final = 100
# The colours that the format knows, for viewers that follow it.
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


@dataclass(slots=True)
class _Rows:
    """Events of one lane kind: columns of one length, written one object a row."""

    process: int
    lane: Ints
    start: Ints
    end: Ints
    name: Ids
    kind: Any


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
        self._trace: Trace = analysis.trace
        self._names = [json.dumps(name) for name in analysis.trace.names]
        # Viewers count microseconds; the digits behind the point keep every tick.
        self._per_us = 1000 * analysis.trace.ticks_per_ns
        self._digits = len(str(self._per_us)) - 1
        self._flow = count(1)
        first_host = FIRST_DEVICE + len(analysis.devices)
        pids = list(dict.fromkeys(thread.pid for thread in analysis.trace.threads))
        self._hosts = {pid: first_host + i for i, pid in enumerate(pids)}
        # The lane of a thread; those that it needs where spans cross lie beside it.
        self._lane_of = np.arange(1, len(analysis.trace.threads) + 1, dtype=np.int64) * APART

    def lines(self) -> Iterator[str]:
        """Return every event, the names of the tracks first."""
        yield from self._steps()
        for place, report in enumerate(self._analysis.devices, FIRST_DEVICE):
            yield from self._device(place, report)
        yield from self._threads()

    def _time(self, ticks: int) -> str:
        sign, ticks = ("-", -ticks) if ticks < 0 else ("", ticks)
        return f"{sign}{ticks // self._per_us}.{ticks % self._per_us:0{self._digits}d}"

    def _event(self, process: int, lane: int, start: int, end: int, rest: str) -> str:
        return (
            f'{{"ph":"X","pid":{process},"tid":{lane},"ts":{self._time(start)},'
            f'"dur":{self._time(end - start)},{rest}}}'
        )

    def _steps(self) -> Iterator[str]:
        steps = self._analysis.steps
        if not len(steps.start):
            return
        yield from _process(STEPS, "steps")
        yield _lane(STEPS, 1, "steps")
        for number, (start, end) in enumerate(_chunks(steps.start, steps.end), 1):
            yield self._event(STEPS, 1, start, end, f'"name":"step {number}","cat":"step"')

    def _device(self, place: int, report: DeviceReport) -> Iterator[str]:
        device, ops = report.device, report.device.ops
        rank = "" if device.rank is None else f" rank {device.rank}"
        where = "" if device.host is None else f" on {device.host}"
        yield from _process(place, f"{device.kind.upper()} {device.index}{rank}{where}")
        yield _lane(place, WHY, "why idle")
        yield from self._why(place, report.budget.segments)
        lane = np.zeros(len(ops), np.int64)
        for at, stream in enumerate(np.unique(ops.stream).tolist(), 1):
            rows = np.flatnonzero(ops.stream == stream)
            lane[rows] = APART * at + lanes(ops.start[rows], ops.end[rows])
            label = self._trace.names[stream] if stream >= 0 else "work"
            label = f"stream {label}" if label.isdecimal() else label
            yield from _lanes(place, lane[rows], label)
        yield from self._rows(_Rows(place, lane, ops.start, ops.end, ops.name, ops.kind))
        yield from self._arrows(place, lane, report)

    def _why(self, place: int, segments: Segments) -> Iterator[str]:
        """Return the account without compute: what is empty in this lane is well spent."""
        threads = self._trace.threads
        columns = (segments.start, segments.end, segments.cause, segments.thread)
        for start, end, code, thread in _chunks(*columns):
            cause = Cause(code)
            if cause.slice is Slice.COMPUTE:
                continue
            waits = threads[thread].label if thread >= 0 else None
            told = {
                "name": f"{LOOKS[cause.slice].words}: {cause.words}",
                "cat": cause.slice,
                "cname": _COLOURS[cause.slice],
                "args": {} if waits is None else {"waits for": waits},
            }
            yield self._event(place, WHY, start, end, json.dumps(told)[1:-1])

    def _threads(self) -> Iterator[str]:
        host = self._trace.host
        for pid, place in self._hosts.items():
            yield from _process(place, "host" if pid is None else f"host process {pid}")
        by_thread = np.argsort(host.thread, kind="stable")
        edges = np.searchsorted(host.thread[by_thread], np.arange(len(self._trace.threads) + 1))
        for at, thread in enumerate(self._trace.threads):
            rows = by_thread[edges[at] : edges[at + 1]]
            lane = self._lane_of[at] + lanes(host.start[rows], host.end[rows])
            place = self._hosts[thread.pid]
            yield from _lanes(place, lane, _thread_label(thread))
            spans = host.take(rows)
            yield from self._rows(
                _Rows(place, lane, spans.start, spans.end, spans.name, spans.kind)
            )

    def _rows(self, rows: _Rows) -> Iterator[str]:
        for lane, start, end, name, kind in _chunks(
            rows.lane, rows.start, rows.end, rows.name, rows.kind
        ):
            label = self._names[name] if name >= 0 else '"?"'
            cause = Cause(kind).name.lower() if kind >= 0 else "host"
            yield self._event(rows.process, lane, start, end, f'"name":{label},"cat":"{cause}"')

    def _arrows(self, place: int, lane: Ints, report: DeviceReport) -> Iterator[str]:
        """Return an arrow from each call that launched work to the work."""
        known = np.flatnonzero((report.launches.start >= 0) & (report.launches.thread >= 0))
        launches, ops = report.launches.take(known), report.device.ops
        for start, thread, to, begins in _chunks(
            launches.start, launches.thread, lane[known], ops.start[known]
        ):
            number, host = next(self._flow), self._hosts[self._trace.threads[thread].pid]
            head = f'"id":{number},"name":"launch","cat":"launch"'
            at = f'"pid":{host},"tid":{self._lane_of[thread]},"ts":{self._time(start)}'
            yield f'{{"ph":"s",{head},{at}}}'
            at = f'"pid":{place},"tid":{to},"ts":{self._time(begins)}'
            yield f'{{"ph":"f","bp":"e",{head},{at}}}'


def _thread_label(thread: Thread) -> str:
    return thread.label or f"thread {thread.tid}"


def _process(number: int, name: str) -> Iterator[str]:
    yield _meta("process_name", number, 0, {"name": name})
    yield _meta("process_sort_index", number, 0, {"sort_index": number})


def _lanes(process: int, used: Ints, name: str) -> Iterator[str]:
    for number in np.unique(used).tolist():
        yield _lane(process, number, name)


def _lane(process: int, number: int, name: str) -> str:
    order = _meta("thread_sort_index", process, number, {"sort_index": number})
    return f"{_meta('thread_name', process, number, {'name': name})},\n{order}"


def _meta(what: str, process: int, lane: int, args: dict[str, Any]) -> str:
    told = {"ph": "M", "name": what, "pid": process, "tid": lane, "args": args}
    return json.dumps(told, separators=(",", ":"))


def _chunks(*columns: Any) -> Iterable[tuple[int, ...]]:
    """Return rows of plain numbers, never all of them at once."""
    for at in range(0, len(columns[0]), ROWS):
        yield from zip(*(c[at : at + ROWS].tolist() for c in columns), strict=True)

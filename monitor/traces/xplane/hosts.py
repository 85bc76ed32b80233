"""What the host threads did, and the steps that the job marked."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from whyidle.monitor.traces.grouping import Whole, order_of
from whyidle.monitor.traces.model import Flags, Ids, Ints, Kinds, Links, Marks, Spans, Thread
from whyidle.monitor.traces.names import Category, host_cause
from whyidle.monitor.traces.xplane.columns import Columns, arranged, column
from whyidle.monitor.traces.xplane.interning import Interner, PerName
from whyidle.monitor.traces.xplane.plane_reader import CALL_STATS, HOST_STATS, PlaneRequest
from whyidle.monitor.traces.xplane.planes import METADATA, Line, Plane

_NOT_THREADS: Final = (METADATA, "/host:tfstreamz", "/host:__ScopeRangeCallStack__")
# XLA notes the end of what it runs as an event of its own.
_TWIN: Final = "end: "
# Driver calls are recognised by where they are noted, or by their names.
_DRIVER_PLANES: Final = ("/host:CUPTI", "/host:ROCTRACER")
_DRIVER_LINE: Final = "Host Threads/"
# Planes in which a line's id is that of the thread.
_OF_THREADS: Final = (
    "/host:CPU",
    *_DRIVER_PLANES,
    "/host:python-tracer",
    "/host:NVTX-CUPTI",
)
_DRIVER_CALL: Final = re.compile(r"(cuda|cu|hip)[A-Z]")
_NVTX: Final = "NVTX:"
_FRAME: Final = "$"  # of Python

_ANNOTATION, _OPERATOR, _PYTHON, _DRIVER, _USER, _TWINS = range(6)
_CATEGORIES: Final[tuple[Category, ...]] = ("annotation", "operator", "python", "driver")


def is_host(plane: Plane) -> bool:
    """Whether the lines of a plane are threads of the host."""
    return plane.name.startswith("/host:") and plane.name not in _NOT_THREADS


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of one plane: where their ids count, their threads, which of them call drivers."""

    lines: list[Line]
    space: tuple[str, int]
    threads: Ids  # -1 until the line has an event
    drivers: Flags


class HostPlanes:
    """The host planes of a file, joined: a thread may have lines in several of them."""

    def __init__(self, intern: Interner, pid: int | None, *, runs_ops: bool) -> None:
        self._pid = pid
        # Where a device runs the operations, the host's part in them is a driver call.
        self._stats = HOST_STATS if runs_ops else CALL_STATS
        self._thread_of: dict[tuple[str, int, int], int] = {}
        self._planes: Counter[str] = Counter()  # so far, by name
        self._lines: list[Line] = []  # of each thread, the one that names it best
        self._category = PerName(intern, _category)
        self._by_name = PerName(intern, _cause)
        self._causes = [PerName(intern, partial(host_cause, c)) for c in _CATEGORIES]
        self._spans = [Spans.of()]
        self._ids: list[Ints] = [np.zeros(0, np.int64)]  # correlation ids of the spans
        self._marks = [Marks.of()]

    @property
    def threads(self) -> list[Thread]:
        """The threads, by what their lines said in the end."""
        return [
            Thread(line.label, self._pid, str(line.id) if line.id else None) for line in self._lines
        ]

    def request(self, plane: Plane) -> PlaneRequest:
        """Return what to read of a host plane."""
        self._planes[plane.name] += 1
        # A host has one plane of a name: another of that name is of another host.
        space = "" if plane.name in _OF_THREADS else plane.name, self._planes[plane.name]
        threads = np.full(len(plane.lines), -1, np.int32)
        drivers = np.array([_calls_driver(plane, line) for line in plane.lines], np.bool_)
        mine = _Lines(plane.lines, space, threads, drivers)
        return PlaneRequest(lambda _: True, self._stats, lambda columns: self._take(columns, mine))

    def _take(self, columns: Columns, lines: _Lines) -> None:
        category = self._category(columns.name)
        # What takes no time and launches nothing is left out, and so are the twins.
        lasts = (columns.end > columns.start) | (columns.correlation >= 0)
        lasts &= category != _TWINS
        if not lasts.all():
            columns, category = columns.take(lasts), category[lasts]
        if not len(columns):
            return
        self._meet(columns, lines)
        kind = self._kinds(columns, category, lines.drivers)
        times = {"start": columns.start, "end": columns.end, "name": columns.name}
        thread = lines.threads[columns.line]
        spans, ids = Spans.of(**times, thread=thread, kind=kind), columns.correlation
        mark = (columns.root == 1) | (columns.step >= 0)
        if mark.any():
            self._marks.append(Marks.of(**times, thread=spans.thread).take(mark))
            spans, ids = spans.take(~mark), ids[~mark]
        self._spans.append(spans)
        self._ids.append(ids)

    def _meet(self, columns: Columns, lines: _Lines) -> None:
        """Give each line with events a thread: two lines of one id are the same one."""
        threads = lines.threads
        for i in np.flatnonzero(np.bincount(columns.line)).tolist():
            if threads[i] >= 0:
                continue
            line = lines.lines[i]
            key = (*lines.space, line.id)
            known = self._thread_of.get(key) if line.id else None
            if known is None:
                known = self._thread_of[key] = len(self._lines)
                self._lines.append(line)
            elif self._lines[known].name.startswith(_DRIVER_LINE):
                self._lines[known] = line
            threads[i] = known

    def _kinds(self, columns: Columns, category: Whole, drivers: Flags) -> Kinds:
        """Return the cause that each event stands for: mostly what its name alone says."""
        kinds: Kinds = self._by_name(columns.name).astype(np.int8, copy=False)
        calls = columns.correlation >= 0
        plain = ~calls & (category == _ANNOTATION)
        # XLA names the operation that it runs, TensorFlow the operator.
        runs = plain & ((columns.hlo_op >= 0) | (columns.tf_op >= 0))
        calls = (calls & (category != _DRIVER)) | (plain & ~runs & drivers[columns.line])
        for which, mine in ((_OPERATOR, runs), (_DRIVER, calls)):
            if mine.any():
                rows = np.flatnonzero(mine)
                kinds[rows] = self._causes[which](columns.name[rows])
        return kinds

    def spans(self) -> tuple[Spans, Links]:
        """Return all spans in order, and which of them launch what."""
        parts, self._spans = self._spans, []
        latest = column(parts, "end")
        order = order_of(column(parts, "start"), np.negative(latest, out=latest))
        del latest
        spans, ids = arranged(Spans, parts, order), np.concatenate(self._ids)[order]
        self._ids = []
        rows = np.flatnonzero(ids >= 0)
        return spans, Links.of(row=rows, id=ids[rows])

    def marks(self) -> Marks:
        """Return the steps in order."""
        order = order_of(column(self._marks, "start"), -column(self._marks, "end"))
        return arranged(Marks, self._marks, order)


def _category(name: str) -> int:
    if name.startswith(_TWIN):
        return _TWINS
    if name.startswith(_FRAME):
        return _PYTHON
    if name.startswith(_NVTX):
        return _USER
    return _DRIVER if _DRIVER_CALL.match(name) else _ANNOTATION


def _cause(name: str) -> int:
    category = _category(name)
    return host_cause("annotation" if category == _USER else _CATEGORIES[category], name)


def _calls_driver(plane: Plane, line: Line) -> bool:
    return plane.name in _DRIVER_PLANES or line.name.startswith(_DRIVER_LINE)

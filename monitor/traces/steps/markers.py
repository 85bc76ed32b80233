"""Steps that the job marked itself: ProfilerStep and StepTraceAnnotation."""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Ints, Marks, Trace

_NUMBER: Final = re.compile(r"[#\s]*\d+$")


def marked(trace: Trace) -> tuple[Ints, Ints, str] | None:
    """Return start and end of the marked steps, and how they are called.

    Several processes, or one marker inside another, give several series; the one that covers
    most of the time counts, and one that repeats counts before one that does not.
    """
    marks = trace.marks.take(trace.marks.end > trace.marks.start)
    series = _series(marks, [_NUMBER.sub("", name) for name in trace.names])
    if not series:
        return None
    name, rows = max(series, key=lambda one: _weight(marks, one[1]))
    chosen = marks.take(np.array(rows))
    return chosen.start, chosen.end, f"{name or 'step'} markers"


def _weight(marks: Marks, rows: list[int]) -> tuple[bool, int, int]:
    covered = marks.end[rows] - marks.start[rows]
    return len(rows) > 1, int(covered.sum()), -rows[0]


def _series(marks: Marks, names: list[str]) -> list[tuple[str, list[int]]]:
    """Split markers into series of one name that do not overlap.

    A process's next marker starts where its last one ended, so each marker continues the series
    that ended last before it.
    """
    series: list[tuple[str, list[int]]] = []
    open_ends: dict[str, list[tuple[int, int]]] = {}
    for row, (start, end, name) in enumerate(
        zip(marks.start.tolist(), marks.end.tolist(), marks.name.tolist(), strict=True)
    ):
        label = names[name] if name >= 0 else ""
        ends = open_ends.setdefault(label, [])
        at = bisect_right(ends, (start, len(marks))) - 1
        if at >= 0:
            which = ends.pop(at)[1]
        else:
            which = len(series)
            series.append((label, []))
        series[which][1].append(row)
        insort(ends, (end, which))
    return series

"""Steps that the job marked itself: ProfilerStep and StepTraceAnnotation."""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from typing import Final

import numpy as np

from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.model import Ints, Marks, Trace
from whyidle.monitor.traces.names import STEP_MARK

_NUMBER: Final = re.compile(r"[#\s]*\d+$")
# A pause between two steps belongs to the first of them unless it is so much longer than usual.
_PAUSE: Final = 2


def marked(trace: Trace, made: Ints) -> tuple[Ints, Ints, str] | None:
    """Return start and end of the marked steps, and how they are called.

    ``made``: how many calls of the driver each thread makes.

    Several processes, or one marker inside another, give several series. That of the process
    which launches most counts, and one that repeats before one that does not; of several, the one
    that covers most of the time.
    """
    marks = trace.marks.take(trace.marks.end > trace.marks.start)
    series = _series(marks, [_NUMBER.sub("", name) for name in trace.names])
    if not series:
        return None
    launched = _launched(trace, made)
    name, rows = max(
        series, key=lambda one: (launched[marks.thread[one[1][0]]], *_weight(marks, one[1]))
    )
    chosen = marks.take(np.array(rows))
    return chosen.start, chosen.end, f"{name or 'step'} markers"


def _launched(trace: Trace, made: Ints) -> Ints:
    """How many calls the process of each thread makes; the last entry is for no thread."""
    numbers: dict[int | None, int] = {}
    process = np.array([numbers.setdefault(t.pid, len(numbers)) for t in trace.threads], np.int64)
    if len(numbers) < 2:
        return np.zeros(len(process) + 1, np.int64)
    counts = np.bincount(process, made, len(numbers)).astype(np.int64)
    return np.append(counts[process], 0)


def _weight(marks: Marks, rows: list[int]) -> tuple[bool, int, int]:
    covered = marks.end[rows] - marks.start[rows]
    return len(rows) > 1, int(covered.sum()), -rows[0]


def _series(marks: Marks, names: list[str]) -> list[tuple[str, list[int]]]:
    """Split markers into series of one name and thread that do not overlap.

    The next marker starts where the last one ended, so each marker continues the series that
    ended last before it.
    """
    series: list[tuple[str, list[int]]] = []
    open_ends: dict[tuple[str, int], list[tuple[int, int]]] = {}
    columns = (marks.start, marks.end, marks.name, marks.thread)
    for row, (start, end, name, thread) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        label = names[name] if name >= 0 else ""
        ends = open_ends.setdefault((label, thread), [])
        at = bisect_right(ends, (start, len(marks))) - 1
        if at >= 0:
            which = ends.pop(at)[1]
        else:
            which = len(series)
            series.append((label, []))
        series[which][1].append(row)
        insort(ends, (end, which))
    return series


def joined_up(marks: Marks, names: list[str]) -> Marks:
    """Let each step last until the next one begins: what lies between, as a loader, is its own.

    The profiler of PyTorch marks its steps so itself.
    """
    end = marks.end.copy()
    joins = np.array([*(not STEP_MARK.match(name) for name in names), False], np.bool_)[marks.name]
    labels: dict[str, int] = {}
    label = [labels.setdefault(_NUMBER.sub("", name), len(labels)) for name in names]
    threads = int(marks.thread.max(initial=0)) + 1
    series = np.array([*label, 0], np.int64)[marks.name] * threads + marks.thread
    for one in present(series[joins]):
        rows = np.flatnonzero(series == one)
        pause = marks.start[rows[1:]] - marks.end[rows[:-1]]
        if len(pause) and pause.min() >= 0:
            usual = pause <= _PAUSE * np.median(pause)
            end[rows[:-1][usual]] = marks.start[rows[1:][usual]]
    return Marks(marks.start, end, marks.name, marks.thread)

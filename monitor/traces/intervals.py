"""Exact arithmetic on intervals: unions, and which label owns each instant."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.model import Flags, Ids, Ints, Kinds

compiled: ModuleType | None
try:
    from whyidle.monitor.traces import _intervals as compiled
except ImportError:  # built without a compiler
    compiled = None


def union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the disjoint, ordered intervals that cover the same instants; starts come sorted."""
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    first = np.r_[True, start[1:] > reach[:-1]]
    last = np.r_[first[1:], True]
    return start[first], reach[last]


def length(start: Ints, end: Ints) -> int:
    """Return how long at least one of these intervals holds; starts come sorted."""
    start, end = union(start, end)
    return int((end - start).sum())


@dataclass(frozen=True, slots=True)
class Timeline:
    """A label for every instant: ``label[i]`` holds from ``time[i]`` to ``time[i + 1]``.

    Before the first time, and where nothing holds, the label is ``none``; the last one holds on.
    """

    time: Ints
    label: Kinds
    none: int

    def at(self, times: Ints) -> Kinds:
        """Return the labels that hold from these times on."""
        if not len(self.time):
            return np.full(len(times), self.none, np.int8)
        i = np.searchsorted(self.time, times, "right") - 1
        return np.where(i >= 0, self.label[np.maximum(i, 0)], np.int8(self.none))

    def within(self, start: int, end: int) -> Timeline:
        """Return the part that holds between two times, with where its first and last begin."""
        a = max(int(np.searchsorted(self.time, start, "right")) - 1, 0)
        b = int(np.searchsorted(self.time, end, "left")) + 1
        return Timeline(self.time[a:b], self.label[a:b], self.none)

    def since(self, start: int) -> Timeline:
        """Return what holds from this time on; there is an entry for the time itself."""
        i = int(np.searchsorted(self.time, start, "right"))
        held = self.label[i - 1] if i else np.int8(self.none)
        return Timeline(np.append(start, self.time[i:]), np.append(held, self.label[i:]), self.none)

    def joined(self) -> Timeline:
        """Join neighbours of one label."""
        keep = changes(self.label)
        return Timeline(self.time[keep], self.label[keep], self.none)


def tally(start: Ints, end: Ints, label: Kinds, between: tuple[int, int], ticks: Ints) -> None:
    """Add to each label what its segments have between two times."""
    if compiled is not None:
        columns = map(np.ascontiguousarray, (start, end, label))
        compiled.tally(*columns, *between, ticks)
        return
    lasts = np.minimum(end, between[1]) - np.maximum(start, between[0])
    np.add.at(ticks, label, np.maximum(lasts, 0))


def changes(label: NDArray[Any]) -> Flags:
    """Mark the entries that differ from the one before."""
    mark = np.ones(len(label), np.bool_)
    mark[1:] = label[1:] != label[:-1]
    return mark


def aligned(*runs: Ints) -> tuple[Ints, list[Ids]]:
    """Merge sorted runs: the distinct times, and for each run its last entry that is not later.

    The entry is -1 where the run has not begun. What np.searchsorted finds for each time alone,
    one merge finds for all of them.
    """
    if compiled is not None:
        times = np.empty(sum(map(len, runs)), np.int64)
        rows = np.empty((len(runs), len(times)), np.int32)
        count = compiled.aligned(tuple(map(np.ascontiguousarray, runs)), times, rows)
        return times[:count], list(rows[:, :count])
    times = np.concatenate(runs)
    order = np.argsort(times, kind="stable")
    times = times[order]
    last = np.append(times[1:] != times[:-1], True)[: len(times)]
    edges = np.cumsum([0, *map(len, runs)]).tolist()
    counts = (np.cumsum((order >= a) & (order < b), dtype=np.int32) for a, b in pairwise(edges))
    return times[last], [count[last] - 1 for count in counts]


def blended(first: Timeline, second: Timeline, table: Kinds) -> Timeline:
    """Let at every instant that hold which the table has for the labels of two lines of one kind.

    A row of it is for a label of the first line. Neighbours of one label are joined.
    """
    none = first.none
    if compiled is not None:
        rows = len(first.time) + len(second.time)
        time, label = np.empty(rows, np.int64), np.empty(rows, np.int8)
        given = (first.time, first.label, second.time, second.label, table)
        columns = map(np.ascontiguousarray, given)
        rows = compiled.blended(*columns, len(table), none, time, label)
        return Timeline(time[:rows].copy(), label[:rows].copy(), none)
    time, (i, j) = aligned(first.time, second.time)
    mine, theirs = (
        np.append(first.label, np.int8(none))[i],
        np.append(second.label, np.int8(none))[j],
    )
    return Timeline(time, table[mine, theirs], none).joined()


def following(run: Ints, times: Ints) -> Ids:
    """Return, for each of some sorted times, the first entry of a sorted run that is not earlier.

    What np.searchsorted finds for each time alone, one walk finds for all of them.
    """
    if compiled is None:
        return np.searchsorted(run, times).astype(np.int32)
    rows = np.empty(len(times), np.int32)
    compiled.following(np.ascontiguousarray(run), np.ascontiguousarray(times), rows)
    return rows


def overlaid(first: Timeline, second: Timeline) -> Timeline:
    """Let the second line hold where the first one has no label."""
    time, (i, j) = aligned(first.time, second.time)
    label = np.append(first.label, np.int8(first.none))[i]
    below = np.append(second.label, np.int8(second.none))[j]
    return Timeline(time, np.where(label == first.none, below, label), second.none).joined()


def sweep(
    start: Ints, end: Ints, label: Kinds, none: int, rows: Ints | Ids | None = None
) -> Timeline:
    """Give every instant the lowest label that is open then; starts come sorted.

    ``rows``: those of the intervals that count, in order.
    """
    some = np.arange(len(start)) if rows is None else rows
    rows = some.astype(np.int32, copy=False)
    if compiled is not None:
        time, labels = np.empty(2 * len(rows), np.int64), np.empty(2 * len(rows), np.int8)
        columns = map(np.ascontiguousarray, (start, end, label, rows))
        count = compiled.sweep(*columns, none, time, labels)
        if count >= 0:
            return Timeline(time[:count].copy(), labels[:count].copy(), none)
    return _sweep(start[rows], end[rows], label[rows], none)


def _sweep(start: Ints, end: Ints, label: Kinds, none: int) -> Timeline:
    """What overlaps nothing is its own label; the rest becomes a union of each label first.

    Host spans nest deeply, and what is left is short.
    """
    real = end > start
    if not real.all():
        start, end, label = start[real], end[real], label[real]
    if not len(start):
        return Timeline(np.zeros(0, np.int64), np.zeros(0, np.int8), none)
    begins = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
    alone = begins & np.append(begins[1:], True)
    line = _of_disjoint(start[alone], end[alone], label[alone], none)
    if alone.all():
        return line
    crowd = ~alone
    return overlaid(line, _of_crowd(start[crowd], end[crowd], label[crowd], none))


def _of_crowd(start: Ints, end: Ints, label: Kinds, none: int) -> Timeline:
    line = Timeline(np.zeros(0, np.int64), np.zeros(0, np.int8), none)
    for value in present(label):
        of = label == value
        a, b = union(start[of], end[of])
        line = overlaid(line, _of_disjoint(a, b, np.full(len(a), value, np.int8), none))
    return line


def _of_disjoint(start: Ints, end: Ints, label: Kinds, none: int) -> Timeline:
    """Each label in its interval; one interval may begin where the one before it ends."""
    time = np.stack([start, end], axis=1).ravel()
    labels = np.stack([label, np.full(len(label), none, np.int8)], axis=1).ravel()
    last = np.append(time[1:] != time[:-1], True)[: len(time)]
    return Timeline(time[last], labels[last], none).joined()

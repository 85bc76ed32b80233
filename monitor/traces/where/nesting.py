"""Which of many nested spans is the innermost at any time, and how much time goes to each.

Spans of one thread nest, so the innermost one is a piecewise constant function of time. All of it
is sorting and searching, no loop over spans; spans that do not nest cost accuracy, never the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from whyidle.monitor.traces.intervals import aligned, changes
from whyidle.monitor.traces.model import Flags, Ints

NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Labels:
    """``label[i]`` holds from ``time[i]`` to ``time[i + 1]``, the last one for ever; -1 is none."""

    time: Ints
    label: Ints

    def at(self, times: Ints) -> Ints:
        """Return the labels that hold from these times on."""
        i = np.searchsorted(self.time, times, "right") - 1
        return np.where(i >= 0, np.r_[self.label, NONE][i], NONE)

    def named(self, names: Ints) -> Self:
        """Replace labels by names: label ``i`` becomes ``names[i]``."""
        return self._of(self.time, np.r_[names, NONE][self.label])

    def over(self, other: Labels) -> Self:
        """Use another one where this one has no label."""
        time, (i, j) = aligned(self.time, other.time)
        mine, below = np.append(self.label, NONE)[i], np.append(other.label, NONE)[j]
        return self._of(time, np.where(mine == NONE, below, mine))

    def held(self) -> Self:
        """Let each label hold until the next one."""
        return self._of(self.time[self.label != NONE], self.label[self.label != NONE])

    def bridged(self) -> Self:
        """Fill the pauses between two entries of one label."""
        held = self.held()
        return self._of(*_bridge(self.time, self.label, held.at(self.time)))

    @classmethod
    def _of(cls, time: Ints, label: Ints) -> Self:
        keep = changes(label)
        return cls(time[keep], label[keep])


def _bridge(time: Ints, label: Ints, before: Ints) -> tuple[Ints, Ints]:
    after = np.r_[label[1:], NONE]
    return time, np.where((label == NONE) & (before == after), before, label)


def never() -> Labels:
    """No label at any time."""
    return Labels(np.zeros(0, np.int64), np.zeros(0, np.int64))


def disjoint(start: Ints, end: Ints, label: Ints) -> Labels:
    """Label these ordered intervals, none of which reaches into the next."""
    if not len(start):
        return never()
    joins = np.r_[end[:-1] == start[1:], False]
    order = np.argsort(np.r_[start, end[~joins]], kind="stable")
    labels = np.r_[label, np.full(int((~joins).sum()), NONE)]
    return Labels(np.r_[start, end[~joins]][order], labels[order])


@dataclass(frozen=True, slots=True)
class Nest:
    """How the spans of one thread lie in each other."""

    parent: Ints  # the row around each one, -1 for none
    innermost: Labels  # rows


def nest(start: Ints, end: Ints) -> Nest:
    """Find what is around each span, and the innermost at any time.

    Spans come sorted by start, the longer first; none is empty. Where one begins inside another
    and outlives it, the rest belongs to neither.
    """
    n = len(start)
    if not n:
        return Nest(np.zeros(0, np.int64), never())
    times = np.r_[end, start]  # in this order: what ends makes room for what begins
    order = np.argsort(times, kind="stable")
    time, begins, row = times[order], order >= n, order % n
    outer = _outer(begins, row)
    outer[np.r_[end, 0][outer] <= time] = NONE
    last = np.r_[time[1:] != time[:-1], True]
    innermost = np.where(begins, row, outer)
    # Begins are in the order of the rows.
    return Nest(outer[begins], Labels(time[last], innermost[last]))


def _outer(begins: Flags, row: Ints) -> Ints:
    """For each begin and end the row that is open around it: the last at the depth outside it."""
    depth = np.cumsum(np.where(begins, 1, -1))
    size = len(depth)
    opened = np.flatnonzero(begins)
    keys = depth[opened] * size + opened
    by_key = np.argsort(keys, kind="stable")
    keys, opened = keys[by_key], opened[by_key]
    outside = depth - begins
    i = np.searchsorted(keys, outside * size + np.arange(size), "left") - 1
    found = opened[i]
    return np.where((i >= 0) & (depth[found] == outside), row[found], NONE)


def portions(start: Ints, end: Ints, line: Labels) -> tuple[Ints, Ints, Ints]:
    """Cut ordered, disjoint intervals where the label changes: which interval, label, length."""
    if not len(start):
        return start, start, start
    cut, (row, ended, held) = aligned(start, end, line.time)
    inside = row > ended
    label = np.append(line.label, NONE)[held[inside]]
    lasts = np.diff(cut, append=cut[-1])
    return row[inside].astype(np.int64), label, lasts[inside]

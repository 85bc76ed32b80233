"""A budget: contiguous segments of time, each of which belongs to one cause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.intervals import tally
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.model import Device, Ids, Ints, Kinds, Table


@dataclass(slots=True)
class Segments(Table):
    """Contiguous pieces of a window, in order."""

    start: Ints
    end: Ints
    cause: Kinds  # a Cause
    thread: Ids  # the host thread that the device waits for; -1 where it waits for none


@dataclass(slots=True)
class Budget:
    """How the time between the first and the last segment divides."""

    segments: Segments
    skew: int = 0  # ticks by which the host's clock had to be set back

    def sums(self, start: Ints, end: Ints) -> dict[Cause, int]:
        """Return the ticks of each cause within these disjoint, ordered parts of the window."""
        if not len(start):
            return {}
        ticks = np.zeros(len(Cause), np.int64)
        apart = np.flatnonzero(start[1:] != end[:-1])
        for a, b in zip(start[np.append(0, apart + 1)], end[np.append(apart, -1)], strict=True):
            self._add(ticks, int(a), int(b))
        return {cause: int(ticks[cause]) for cause in Cause if ticks[cause]}

    def _add(self, ticks: Ints, start: int, end: int) -> None:
        """Add what each cause has between two times."""
        s = self.segments
        first = int(np.searchsorted(s.end, start, "right"))
        last = int(np.searchsorted(s.start, end, "left"))
        within = slice(first, last)
        tally(s.start[within], s.end[within], s.cause[within], (start, end), ticks)


@dataclass(frozen=True, slots=True)
class Accounted:
    """One device of a stretch, with its account there."""

    device: Device
    launches: Launches
    budget: Budget
    span: tuple[int, int]  # from its first to its last operation in all of the trace


def rounded(ticks: dict[Cause, int], ticks_per_ns: int) -> dict[Cause, int]:
    """Return whole nanoseconds that add up to the rounded total: the remainder is shared out."""
    if ticks_per_ns == 1:
        return dict(ticks)
    whole = {cause: t // ticks_per_ns for cause, t in ticks.items()}
    missing = to_ns(sum(ticks.values()), ticks_per_ns) - sum(whole.values())
    by_rest = sorted(ticks, key=lambda cause: ticks[cause] % ticks_per_ns, reverse=True)
    for cause in by_rest[:missing]:
        whole[cause] += 1
    return whole


def to_ns(ticks: int, ticks_per_ns: int) -> int:
    """Round once, half to even, in integers."""
    whole, rest = divmod(ticks, ticks_per_ns)
    up = 2 * rest > ticks_per_ns or (2 * rest == ticks_per_ns and whole % 2 == 1)
    return whole + up


def by_slice(ns: dict[Cause, int]) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Return the slices, all of them, and what each is made of."""
    slices = dict.fromkeys(map(str, Slice), 0)
    details: dict[str, dict[str, int]] = {}
    for cause, value in ns.items():
        if value:
            slices[cause.slice] += value
            details.setdefault(cause.slice, {})[cause.words] = value
    return slices, details

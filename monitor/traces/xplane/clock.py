"""Ticks from the times of a file: ps since the earliest line begins."""

from __future__ import annotations

from statistics import median_low
from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Flags, Ids, Ints
from whyidle.monitor.traces.xplane.planes import Line

PS: Final = 1000  # ticks of a nanosecond
# Times farther apart than 26 days of ps do not fit, and no profile is that long.
_FARTHEST: Final = 1 << 61


class Clock:
    """Where tick 0 is."""

    def __init__(self, lines: list[Line]) -> None:
        times = [line.timestamp_ns for line in lines]
        # A line of another time altogether does not move the origin: it is left out.
        middle = median_low([time for time in times if time] or [0])
        near = [time for time in times if abs(middle - time) * PS < _FARTHEST // 2]
        self.origin_ns = min(near, default=None)
        self.impossible = 0  # events

    def begins(self, lines: list[Line]) -> Ints:
        """Return where each line begins; -1 where it is of another time."""
        origin = self.origin_ns or 0
        ticks = [(line.timestamp_ns - origin) * PS for line in lines]
        return np.array([t if 0 <= t < _FARTHEST else -1 for t in ticks], np.int64)

    def spans(
        self, begins: Ints, line: Ids, offset: Ints, duration: Ints
    ) -> tuple[Ints, Ints, Flags | None]:
        """Return when events start and end, and which have times that can be; None for all."""
        begin = begins.take(line.astype(np.int64))
        start = begin + offset
        end = start + duration
        low, high = duration.min(initial=0), max(duration.max(initial=0), offset.max(initial=0))
        least = min(begins.min(initial=0), offset.min(initial=0) + _FARTHEST - 1)
        if low >= 0 and high < _FARTHEST and least >= 0:
            return start, end, None
        sane = (duration >= 0) & (duration < _FARTHEST) & (begin >= 0)
        sane &= (offset > -_FARTHEST) & (offset < _FARTHEST)
        self.impossible += len(sane) - int(sane.sum())
        return start, end, sane

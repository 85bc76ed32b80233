"""Whole steps between the times at which steps begin."""

from __future__ import annotations

import numpy as np

from whyidle.monitor.traces.model import Ints
from whyidle.monitor.traces.steps.repetition import TOLERANCE

# A step that holds so much less or more work than the others is none, or not whole.
_IRREGULAR = 0.5


def between(cuts: Ints, work: Ints, first: int, last: int) -> tuple[Ints, Ints]:
    """Return start and end of the steps that these cuts divide the sorted times of work into.

    A cut that no work follows begins no step. What lies before the first cut and after the last
    one is a step where it holds as much work as a step does; it reaches as far as the record,
    from ``first`` to ``last``, but is not longer than the longest of the others.
    """
    before = np.searchsorted(work, cuts)
    cuts = cuts[np.r_[True, np.diff(before) > 0]] if len(cuts) else cuts
    if len(cuts) < 2:
        return cuts[:0], cuts[:0]
    before = np.searchsorted(work, cuts)
    held = np.diff(before)
    start, end, typical = cuts[:-1], cuts[1:], float(np.median(held))
    regular = np.abs(held - typical) <= _IRREGULAR * typical
    start, end = start[regular], end[regular]
    long = int((end - start).max(initial=0))
    if _as_much(int(before[0]), typical):
        begin = min(int(work[0]), max(first, int(cuts[0]) - long))
        start, end = np.r_[begin, start], np.r_[cuts[0], end]
    if _as_much(len(work) - int(before[-1]), typical):
        done = max(int(work[-1]), min(last, int(cuts[-1]) + long))
        start, end = np.r_[start, cuts[-1]], np.r_[end, done]
    return start, end


def _as_much(held: int, typical: float) -> bool:
    return abs(held - typical) <= TOLERANCE * typical

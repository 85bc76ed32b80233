"""From points that each cover the last ten seconds to points that cover the time since the last.

What a job compiles while it starts is in such points for ten seconds more: in a recording of
twelve it would be nearly everywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from whyidle.monitor.core.metrics import REACH_S
from whyidle.monitor.store import Point

REACH_MS: Final = round(REACH_S * 1000)


def since_the_last(
    points: Sequence[Point], *, corrects: bool = False
) -> list[tuple[int, int, float]]:
    """Return stretches: from when, to when, and the mean in between; nothing is less than none.

    Before the first point that is known nothing had been counted, or as much as it says.
    ``corrects``: a point may take back what the one before it had too much of, as of steps, where a
    pause shows late; then only the mean of many stretches is right.
    """
    known = [(point.ts_ms, point.mean) for point in points if point.mean is not None]
    if not known:
        return []
    unknown = [point.ts_ms for point in points if point.ts_ms < known[0][0]]
    moments = [max(unknown, default=known[0][0] - REACH_MS)]
    totals, gaps = [0.0], set[int]()
    for moment, mean in known:
        if moment == moments[-1]:
            # A process that was seen as two: the one ends where the other begins.
            continue
        begin = max(moments[0], moment - REACH_MS)
        if begin > moments[-1]:
            # Nobody looked for longer than a point reaches back: what came then is not known.
            gaps.add(len(moments))
            moments.append(begin)
            totals.append(totals[-1])
        total = _at(moments, totals, begin) + mean * (moment - begin)
        totals.append(total if corrects else max(totals[-1], total))
        moments.append(moment)
    stretches = zip(pairwise(moments), pairwise(totals), strict=True)
    return [
        (since, until, (after - before) / (until - since))
        for number, ((since, until), (before, after)) in enumerate(stretches, 1)
        if number not in gaps
    ]


def mean_of(points: Sequence[Point], start_ms: int, *, corrects: bool = False) -> float | None:
    """Return the mean of what came after a moment; ``None``: nothing did."""
    stretches = since_the_last(points, corrects=corrects)
    parts = [(max(a, start_ms), b, mean) for a, b, mean in stretches if b > start_ms]
    whole = sum(b - a for a, b, _ in parts)
    return sum((b - a) * mean for a, b, mean in parts) / whole if whole else None


def _at(moments: Sequence[int], totals: Sequence[float], moment: int) -> float:
    """Return what a total was in between."""
    right = bisect_left(moments, moment)
    if right == 0 or moments[right] == moment:
        return totals[right]
    share = (moment - moments[right - 1]) / (moments[right] - moments[right - 1])
    return totals[right - 1] + share * (totals[right] - totals[right - 1])

"""Where in a sequence of names its periods begin."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.traces.model import Flags, Ids, Ints
from whyidle.monitor.traces.steps.repetition import TOLERANCE, Hashes, Period, contexts

# So many names before and after distinguish the uses of a name.
_WIDTH: Final = 8
# A record of exactly so many periods, each so long, begins where a period does: profilers begin
# between steps, and a record cut anywhere else would be so by chance once in a hundred.
_LONG: Final = 100


def anchors(names: Ids, found: Period, pause: Ints) -> Ints:
    """Return where periods begin: after the longest of the pauses that come once a period.

    ``pause`` is the time before each entry. Places that noise hides are filled in.
    """
    if found.length == 1:
        return np.flatnonzero(names == np.bincount(names).argmax())
    if found.length >= _LONG and len(names) % found.length == 0:
        return np.arange(0, len(names), found.length)
    hashed = _surroundings(names, 1 << min(found.length, _WIDTH).bit_length() - 1)
    order = np.lexsort((pause, hashed))
    edge = np.flatnonzero(np.r_[True, np.diff(hashed[order]) != 0])
    count = np.diff(np.r_[edge, len(order)])
    middle = pause[order[edge + count // 2]]
    regular = _regular(hashed, found.length)[hashed[order[edge]]]
    # The first or the last use may lie where the record is cut.
    eligible = np.flatnonzero(regular >= max(1, min(0.9 * regular.max(), regular.max() - 1)))
    # Of equal pauses the one that comes first in the record.
    first = np.minimum.reduceat(order, edge)[eligible]
    best = eligible[np.lexsort((first, -middle[eligible]))[0]]
    return _filled(np.flatnonzero(hashed == hashed[order[edge[best]]]), found.length, len(names))


def _surroundings(names: Ids, width: int) -> Hashes:
    """Hash each name with those before and after it: within a loop those after are the same."""
    after, before = contexts(names, width), contexts(names[::-1], width)[::-1]
    return after * np.uint16(31) + np.roll(before, 1)


def _near(value: NDArray[Any], wanted: NDArray[Any] | float) -> Flags:
    """Mark what is within tolerance, or one off."""
    return np.abs(value - wanted) <= np.maximum(1, TOLERANCE * np.asarray(wanted))


def _regular(hashed: Hashes, length: int) -> Ints:
    """For each hash, how often its next use is one period away."""
    order = np.argsort(hashed, kind="stable")
    of = hashed[order]
    hit = (of[1:] == of[:-1]) & _near(np.diff(order), length)
    return np.bincount(of[1:][hit], minlength=1 << 16)


def _filled(at: Ints, length: int, total: int) -> Ints:
    """Add the beginnings that are missing before, between and after those that were found."""
    distance = np.diff(at)
    times = np.maximum(np.rint(distance / length).astype(np.int64), 1)
    times = np.where(_near(distance, times * length), times, 1)
    offset = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    between = np.repeat(at[:-1], times) + offset * length
    before = np.arange(at[0] % length, at[0], length)
    after = np.arange(at[-1], total, length)
    return np.concatenate([before, between, after])

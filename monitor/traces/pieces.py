"""Reduce many pieces to what can be seen: long ones stay, short neighbours are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Flags, Ids, Ints, Kinds, Table

# Two pieces within this part of the window cannot be distinguished.
FINEST: Final = 1 / 1200
_COARSER: Final = 1.6


@dataclass(slots=True)
class MergedPieces(Table):
    """What is drawn of one lane: each row is one piece, or several merged ones."""

    start: Ints
    end: Ints
    kind: Kinds  # the Cause with most of the time
    count: Ints  # pieces
    busy: Ints  # ticks of all its pieces
    main: Ids  # the row of the longest piece


def merge_short(start: Ints, end: Ints, kind: Ints, finest: int) -> MergedPieces:
    """Merge pieces shorter than ``finest`` that are close; pieces are disjoint and sorted."""
    if not len(start):
        return MergedPieces.of()
    length = end - start
    short = length < finest
    # First by equal cells of time, so that the dominant cause is a local one.
    place = start // finest
    starts = np.r_[True, ~(short[1:] & short[:-1] & (place[1:] == place[:-1]))]
    cells = _joined(start, end, kind, length, np.flatnonzero(starts))
    near = cells.start[1:] - cells.end[:-1] <= finest
    alone = ~short[cells.main]
    same = (cells.kind[1:] == cells.kind[:-1]) & near & ~(alone[1:] | alone[:-1])
    first = np.flatnonzero(np.r_[True, ~same])
    return _joined(start, end, kind, length, np.flatnonzero(starts)[first])


def _joined(start: Ints, end: Ints, kind: Ints, length: Ints, first: Any) -> MergedPieces:
    """Return one row for the pieces from each start to the next."""
    count = np.diff(first, append=len(start))
    group = np.repeat(np.arange(len(first)), count)
    most = np.maximum.reduceat(length, first)
    longest = np.flatnonzero(length == most[group])
    main = longest[np.r_[True, group[longest][1:] != group[longest][:-1]]]
    of_kind = np.bincount(
        group * len(Cause) + kind, weights=length, minlength=len(first) * len(Cause)
    ).reshape(len(first), len(Cause))
    # Pieces without length have no weight.
    kinds = np.where(of_kind.any(axis=1), of_kind.argmax(axis=1), kind[main])
    return MergedPieces.of(
        start=start[first],
        end=np.maximum.reduceat(end, first),
        kind=kinds,
        count=count,
        busy=np.add.reduceat(length, first),
        main=main,
    )


def merge_to_fit(
    lines: list[tuple[Ints, Ints, Ints]], span: int, most: int, finest: float = FINEST
) -> list[MergedPieces]:
    """Merge the pieces of all lanes until there are about ``most`` at most."""
    ticks = max(1, int(span * finest))
    while True:
        pieces = [merge_short(*line, ticks) for line in lines]
        if sum(map(len, pieces)) <= most or ticks > span:
            return pieces
        ticks = int(ticks * _COARSER) + 1


def depths(start: Ints, end: Ints) -> Ints:
    """Return the row of each of the sorted spans, so that none overlaps another on its row."""
    found = np.arange(len(start)) - np.searchsorted(np.sort(end), start, "right")
    if _apart(start, end, found):
        return found
    free: list[int] = []
    for at, (begin, last) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        line = next((i for i, until in enumerate(free) if until <= begin), len(free))
        free[line : line + 1] = [last]
        found[at] = line
    return found


def _apart(start: Ints, end: Ints, line: Ints) -> bool:
    order = np.lexsort((start, line))
    same: Flags = line[order][1:] == line[order][:-1]
    return not (same & (start[order][1:] < end[order][:-1])).any()

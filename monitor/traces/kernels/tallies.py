"""Sums by name: how often, and how long in all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.monitor.traces.model import Ids, Ints, Table


@dataclass(slots=True)
class Tally(Table):
    """One row an id, the longest total first."""

    id: Ints
    count: Ints
    total: Ints  # ticks


def tally(ids: Ids | Ints, ticks: Ints) -> Tally:
    """Add up ticks by id, exactly; rows without an id are left out."""
    rows = np.flatnonzero(ids >= 0)
    rows = rows[np.argsort(ids[rows], kind="stable")]
    if not len(rows):
        return Tally.of()
    ordered = ids[rows]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    total = np.add.reduceat(ticks[rows], first)
    found = Tally.of(id=ordered[first], count=np.diff(np.r_[first, len(rows)]), total=total)
    return found.take(np.lexsort((found.id, -found.total)))


@dataclass(frozen=True, slots=True)
class Named:
    """How often something of one name ran, how long in all, and its share of all of its kind."""

    name: str
    count: int
    total: int  # ticks
    share: float

    @property
    def mean(self) -> float:
        """Ticks that one of them takes."""
        return self.total / self.count


def named(found: Tally, names: list[str], whole: int) -> list[Named]:
    """Give a tally its names; ``whole`` is what shares are of."""
    rows = zip(found.id.tolist(), found.count.tolist(), found.total.tolist(), strict=True)
    return [
        Named(names[name], count, total, total / whole if whole else 0.0)
        for name, count, total in rows
    ]

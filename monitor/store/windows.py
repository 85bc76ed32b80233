"""The rows of a window of time, out of the blocks of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.store.blocks import Columns, Found, longest, uncut

# The rows opened per table and window, unless more are wanted or the longest level alone has more:
# opening them is what takes the time of a window.
READ_MOST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows are wanted."""

    start: int
    end: int
    most: int  # rows of a table
    clip: bool = True  # cut off what reaches over the edge

    def rows(
        self, read: Callable[[int], bytes], blocks: Iterable[Found], then: str | None = None
    ) -> Rows:
        """Return the rows of a table, by start; among equals the longer first, or by ``then``."""
        near = [b for b in blocks if b.start < self.end and b.stop >= self.start]
        chosen = list(_readable(near, max(READ_MOST, self.most)))
        # Unopened rows may lie outside of the window: this is an upper bound.
        left_out = sum(block.rows for block in near) - sum(block.rows for block in chosen)
        parts = [self._held(block.lane, uncut(read(block.id))) for block in chosen]
        if not parts:
            return Rows({}, left_out)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        keep = longest(columns["end"] - columns["start"], self.most)
        left_out += len(keep) - int(keep.sum())
        columns = {name: column[keep] for name, column in columns.items()}
        order = _order(columns, then)
        return Rows(self._clipped({name: c[order] for name, c in columns.items()}), left_out)

    def _held(self, lane: int, columns: Columns) -> Columns:
        """Return the rows that reach into the window, including empty ones at its start."""
        start, end = columns["start"], columns["end"]
        held = (start < self.end) & ((end > self.start) | (start >= self.start))
        columns["lane"] = np.full(len(start), lane)
        return {name: column[held] for name, column in columns.items()}

    def _clipped(self, columns: Columns) -> Columns:
        if self.clip:
            for name in ("start", "end"):
                columns[name] = np.clip(columns[name], self.start, self.end)
        return columns


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table in a window."""

    columns: Columns  # none at all where there is no row
    left_out: int  # at most this many rows, the shortest, are missing here

    def lane(self, lane: int) -> Columns:
        """Return the rows of one lane."""
        if not self.columns:
            return {}
        of: NDArray[np.bool_] = self.columns["lane"] == lane
        return {name: column[of] for name, column in self.columns.items()}


def _order(columns: Columns, then: str | None) -> NDArray[np.intp]:
    """Order by start; blocks are sorted already, so the second key costs most."""
    start = columns["start"]
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    if (ordered[1:] != ordered[:-1]).all():
        return order
    return np.lexsort((columns[then] if then else start - columns["end"], start))


def _readable(blocks: Iterable[Found], most: int) -> Iterator[Found]:
    """Yield the blocks of the longest events, level by level, up to so many rows."""
    total = 0
    ordered = sorted(blocks, key=lambda block: (block.level, block.id))
    for level, of_level in groupby(ordered, key=lambda block: block.level):
        some = list(of_level)
        total += sum(block.rows for block in some)
        if total > most and level:
            return
        yield from some

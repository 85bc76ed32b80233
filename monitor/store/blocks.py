"""Tables of events, cut into blocks so that a window of time opens few of them.

The longest events are kept apart, in levels by rank: a few, sixteen times as many, all others. A
wide window then finds the events long enough to be seen without reading everything, and a narrow
one need not search every block for long events that began before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.store.columns import Column, pack_all, unpack_all

Columns = dict[str, Column]

BLOCK_ROWS: Final = 1 << 14
# A level holds this many times the events of all longer levels together, as a shift.
_RATIO_BITS: Final = 4
# A level that would fill less than this share of a block is not worth having.
_LEAST_SHARE: Final = 1 / 4
# Knuth's multiplicative hash: equals are picked at random, not in order of time.
_SCATTER: Final = 2_654_435_761


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a table that lie close in time."""

    table: str
    lane: int  # which one, where there are several tables of a kind
    level: int  # 0: the longest events
    start: int  # the earliest start, and the latest end
    stop: int
    rows: int
    data: bytes


class Found(NamedTuple):
    """A block in the store, not opened."""

    id: int
    table: str
    lane: int
    level: int
    start: int
    stop: int
    rows: int


def cut(
    table: str, lanes: Sequence[Mapping[str, Column]], rows: int | None = None
) -> Iterator[Block]:
    """Yield the lanes of a table in blocks; ``start`` and ``end`` say when each row was."""
    rows = rows or BLOCK_ROWS
    lengths = [columns["end"] - columns["start"] for columns in lanes]
    level = _levels(np.concatenate(lengths), rows) if lanes else np.zeros(0, np.int8)
    first = 0
    for lane, (columns, length) in enumerate(zip(lanes, lengths, strict=True)):
        of_lane = level[first : first + len(length)]
        first += len(length)
        # A duration is a smaller number than an end time.
        packed = {**columns, "end": length}
        for value in np.unique(of_lane).tolist():
            found = np.flatnonzero(of_lane == value)
            for i in range(0, len(found), rows):
                part = found[i : i + rows]
                times = int(columns["start"][part].min()), int(columns["end"][part].max())
                data = pack_all({name: column[part] for name, column in packed.items()})
                yield Block(table, lane, value, *times, len(part), data)


def uncut(data: bytes) -> Columns:
    """Return the original columns of a block."""
    columns = unpack_all(data)
    columns["end"] += columns["start"]
    return columns


def longest(length: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Mark the longest events, at most ``most``."""
    keep = np.ones(len(length), np.bool_)
    if len(length) > most:
        keep[np.argpartition(-_weights(length), most)[most:]] = False
    return keep


def _levels(length: NDArray[np.int64], rows: int) -> NDArray[np.int8]:
    n = len(length)
    sizes = [n >> _RATIO_BITS * turn for turn in (3, 2, 1)]
    sizes = [size for size in sizes if size >= rows * _LEAST_SHARE] if n > rows else []
    level = np.full(n, len(sizes), np.int8)
    if sizes:
        order = np.argpartition(-_weights(length), sizes)
        for value, size in reversed(list(enumerate(sizes))):
            level[order[:size]] = value
    return level


def _weights(length: NDArray[np.int64]) -> NDArray[np.float64]:
    chance = np.arange(len(length), dtype=np.uint64) * np.uint64(_SCATTER) % np.uint64(1 << 32)
    weights: NDArray[Any] = length + chance / (1 << 32)
    return weights

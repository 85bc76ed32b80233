"""Distinct values of long columns without sorting or hashing: ids are small numbers.

``np.unique`` takes 10 ms and more for 100 k rows; counting takes a tenth of that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.traces.model import Ints

# Counting needs a place for every number up to the largest one.
_PLACES: Final = 1 << 20

Whole = NDArray[np.integer[Any]]


def present(ids: Whole) -> list[int]:
    """Return the distinct values of a column of ids, in order; -1 is one of them."""
    if not len(ids):
        return []
    low, high = int(ids.min()), int(ids.max())
    if high - low > _PLACES:
        return [int(i) for i in np.unique(ids)]
    return (np.flatnonzero(np.bincount(ids.astype(np.int64) - low)) + low).tolist()


def numbered(keys: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys in order, and for each row which of them it has."""
    if not len(keys):
        return keys, keys
    low = int(keys.min())
    if int(keys.max()) - low > _PLACES:
        return np.unique(keys, return_inverse=True)
    at = keys - low
    there = np.bincount(at) > 0
    return np.flatnonzero(there) + low, (np.cumsum(there) - 1)[at]


def order_of(first: Ints, then: Ints) -> Ints:
    """Return the rows in order of one column, and where that is the same, of another.

    What ``np.lexsort`` does, in a third of the time where files are nearly in order and few rows
    are alike.
    """
    order = np.argsort(first, kind="stable")
    ordered = first[order]
    same = ordered[1:] == ordered[:-1]
    del ordered
    if not same.any():
        return order
    second = then[order]
    if not (same & (second[1:] < second[:-1])).any():
        return order
    del second
    places = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[places]
    order[places] = rows[np.lexsort((then[rows], first[rows]))]
    return order

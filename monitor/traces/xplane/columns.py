"""The events of a chunk as columns, and tables put together in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from whyidle.monitor.traces.model import Ids, Ints, Kinds, Table

Some = TypeVar("Some", bound=Table)


@dataclass(slots=True)
class Columns(Table):
    """Events; names are those of the trace, times ticks."""

    line: Ids
    name: Ids
    start: Ints
    end: Ints
    correlation: Ints
    root: Kinds
    step: Ints
    hlo_op: Ids
    hlo_module: Ids
    tf_op: Ids
    details: Ids


def by_time(start: Ints, then: Ints) -> Ints:
    """Return the order by start, and by ``then`` where two start together."""
    # Lines come in order: a stable sort merges them, far faster than one by two keys.
    order = np.argsort(start, kind="stable")
    sorted_ = start[order]
    same = sorted_[1:] == sorted_[:-1]
    if same.any():
        tied = np.flatnonzero(np.r_[same, False] | np.r_[False, same])
        rows = order[tied]
        order[tied] = rows[np.lexsort((then[rows], start[rows]))]
    return order


def column(parts: list[Some], name: str) -> Ints:
    """Put one column of several tables together."""
    joined: Ints = np.concatenate([getattr(part, name) for part in parts])
    return joined


def arranged(kind: type[Some], parts: list[Some], order: Ints) -> Some:
    """Put tables together in this order, a column after the other: memory is what costs time."""
    return kind(**{name: column(parts, name)[order] for name in kind.columns()})

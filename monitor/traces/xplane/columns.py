"""The events of a chunk as columns, and tables put together in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

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

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Make columns; those that are not given take no room: one -1 stands for all rows."""
        rows = len(given["line"])
        missing = {
            name: np.broadcast_to(np.array(-1, dtype), rows)
            for name, dtype in cls.columns().items()
            if name not in given
        }
        # By name: with slots, a dataclass is another class than the one that is written here.
        return super(Columns, cls).of(**given, **missing)

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """Return these rows only, in this order."""
        places = np.arange(len(self))[rows]
        columns = ((name, getattr(self, name)) for name in self.columns())
        return type(self)(**{
            name: np.broadcast_to(column[:1], len(places)) if not any(column.strides)
            else column.take(places)
            for name, column in columns
        })  # fmt: skip


def column(parts: list[Some], name: str) -> Ints:
    """Put one column of several tables together."""
    joined: Ints = np.concatenate([getattr(part, name) for part in parts])
    return joined


def arranged(kind: type[Some], parts: list[Some], order: Ints) -> Some:
    """Put tables together in this order, column after column, and empty them: memory is time."""
    found = {}
    for name in kind.columns():
        found[name] = column(parts, name)[order]
        for part in parts:
            setattr(part, name, found[name][:0])
    return kind(**found)

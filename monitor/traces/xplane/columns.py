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

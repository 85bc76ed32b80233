"""Which operations of which XLA programs ran."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Ids
from whyidle.monitor.traces.xplane.hlo import Sources

# More programs at once than this are told apart by sorting.
_FEW: Final = 16


class Programs:
    """Collects the operations of each program, by numbers of names."""

    def __init__(self) -> None:
        self._ran: dict[int, set[int]] = defaultdict(set)

    def note(self, modules: Ids, ops: Ids) -> None:
        """Take in operations; -1 is none."""
        known = (modules >= 0) & (ops >= 0)
        if not known.all():
            modules, ops = modules[known], ops[known]
        present = np.flatnonzero(np.bincount(modules)).tolist()
        if len(present) == 1:
            self._ran[present[0]].update(np.flatnonzero(np.bincount(ops)).tolist())
        elif len(present) <= _FEW:
            for module in present:
                mine = ops[modules == module]
                self._ran[module].update(np.flatnonzero(np.bincount(mine)).tolist())
        else:
            for pair in np.unique((modules.astype(np.int64) << 32) | ops).tolist():
                self._ran[pair >> 32].add(pair & 0xFFFFFFFF)

    def sources(self, names: list[str]) -> Sources:
        """Return what finds the lines of code behind them."""
        return Sources({names[m]: {names[op] for op in ops} for m, ops in self._ran.items()})

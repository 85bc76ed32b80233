"""The distinct numbers of a column that comes block by block."""

from __future__ import annotations

from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Ints

_MOST_WAITING: Final = 1 << 20


class Distinct:
    """Numbers, each once: a few names, or as many as there are rows."""

    def __init__(self) -> None:
        self._found = np.zeros(0, np.int64)
        self._new: list[Ints] = []
        self._waiting = 0

    def add(self, values: Ints) -> None:
        """Take a block of the column."""
        self._new.append(np.unique(values))
        self._waiting += len(self._new[-1])
        # Seldom, so that many numbers are not sorted again for each block.
        if self._waiting > max(_MOST_WAITING, len(self._found)):
            self.values()

    def values(self) -> Ints:
        """Return the numbers in order."""
        if self._new:
            self._found = np.unique(np.concatenate([self._found, *self._new]))
            self._new, self._waiting = [], 0
        return self._found

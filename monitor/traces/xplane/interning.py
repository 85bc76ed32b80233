"""Numbers for names: one table for the trace, lookups from a plane's table, and values by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import text
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.model import Ids, Ints

NAMELESS: Final = "(no name in the file)"
# Numbers of a plane's table are looked up in an array where they are dense: it holds at most so
# many for each name, and so many in all. One number near 2**20 costs no array of that size.
_SPARSE: Final = 8
_LEAST: Final = 64
_DENSE: Final = 1 << 20
_UNSEEN: Final = -2


class Interner:
    """The names of the trace."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        """Return the number of a name."""
        found = self._ids.setdefault(name, len(self.names))
        if found == len(self.names):
            self.names.append(name)
        return found


class Lookup:
    """Turns the numbers of one table into those of the trace; only names in use are kept."""

    def __init__(self, table: dict[int, bytes], intern: Interner) -> None:
        self._table = table
        self._intern = intern
        most = min(_SPARSE * len(table) + _LEAST, _DENSE)
        highest = max((key for key in table if 0 <= key < most), default=0)
        self._known: Ids = np.full(highest + 2, _UNSEEN, np.int32)

    def __call__(self, keys: Ints) -> Ids:
        """Return the names behind these numbers."""
        if not len(keys):
            return keys.astype(np.int32)
        if int(keys.min()) < 0 or int(keys.max()) >= len(self._known):
            unique, where = np.unique(keys, return_inverse=True)
            return np.array([self._name(key) for key in unique.tolist()], np.int32)[where]
        found = self._known[keys]
        new = found == _UNSEEN
        if new.any():
            for key in present(keys[new]):
                self._known[key] = self._name(key)
            found = self._known[keys]
        return found

    def _name(self, key: int) -> int:
        name = self._table.get(key)
        return self._intern(NAMELESS if name is None else text(name))


class PerName:
    """A function of names, computed once for each name in use."""

    def __init__(self, intern: Interner, question: Callable[[str], int], none: int = -1) -> None:
        self._names = intern.names
        self._question = question
        self._none = none
        self._table: Ints = np.zeros(0, np.int64)
        self._asked = np.zeros(0, np.bool_)

    def __call__(self, ids: Ids) -> Ints:
        """Return the value for each of these names; ``none`` where there is no name."""
        if len(self._names) >= len(self._table):
            self._grow(2 * len(self._names) + 1)
        if not self._asked[ids].all():
            for name in present(ids[~self._asked[ids]]):
                self._table[name] = self._question(self._names[name])
            self._asked[ids] = True
        return self._table[ids]

    def _grow(self, size: int) -> None:
        """Make room for more names than there are: each plane of a file may bring a few."""
        known = max(len(self._table) - 1, 0)
        self._table = np.r_[self._table[:known], np.zeros(size - known, np.int64)]
        self._asked = np.r_[self._asked[:known], np.zeros(size - known, np.bool_)]
        # The last one stands for -1, no name.
        self._table[-1], self._asked[-1] = self._none, True

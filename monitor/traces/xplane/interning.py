"""Numbers for names: one table for the trace, lookups from a plane's table, and values by name."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Final

import numpy as np

from whyidle.monitor.core.protobuf import text
from whyidle.monitor.traces.grouping import Whole, present
from whyidle.monitor.traces.model import Ids, Ints

NAMELESS: Final = "(no name in the file)"
# Numbers of a plane's table are looked up in an array where they are dense: it holds at most so
# many for each name, and so many in all. One number near 2**20 costs no array of that size.
_SPARSE: Final = 8
_LEAST: Final = 64
_DENSE: Final = 1 << 20
_UNSEEN: Final = -2
NO_NAME: Final = -1


class Interner:
    """The names of the trace."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}
        # The operations of several devices are put in order side by side.
        self._lock = Lock()

    def __call__(self, name: str) -> int:
        """Return the number of a name."""
        with self._lock:
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
        found = self._known.take(keys)
        new = found == _UNSEEN
        if new.any():
            for key in present(keys[new]):
                self._known[key] = self._name(key)
            found = self._known.take(keys)
        return found

    def _name(self, key: int) -> int:
        name = self._table.get(key)
        return self._intern(NAMELESS if name is None else text(name))


class PerName:
    """A function of names, computed once for each name in use; its values fit ``dtype``."""

    def __init__(
        self,
        intern: Interner,
        question: Callable[[str], int],
        dtype: type[np.signedinteger[Any]] = np.int8,
    ) -> None:
        self._names = intern.names
        self._question = question
        # The least number stands for a question that nobody asked yet.
        self._unasked = int(np.iinfo(dtype).min)
        self._table = np.full(1, NO_NAME, dtype)

    def __call__(self, ids: Ids) -> Whole:
        """Return the value for each of these names; -1 where there is no name."""
        if len(self._names) >= len(self._table):
            self._grow(2 * len(self._names) + 2)
        # NumPy takes twice as long to look up by short numbers.
        places = ids.astype(np.int64)
        found = self._table.take(places)
        new = found == self._unasked
        if new.any():
            for name in present(ids[new]):
                self._table[name] = self._question(self._names[name])
            found = self._table.take(places)
        return found

    def _grow(self, size: int) -> None:
        """Make room for more names than there are: each plane of a file may bring a few."""
        table = np.full(size, self._unasked, self._table.dtype)
        table[: len(self._table) - 1] = self._table[:-1]
        # The last one stands for -1, no name.
        table[-1] = NO_NAME
        self._table = table

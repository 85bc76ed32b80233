"""Numbers for names, in the order in which they come."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

import numpy as np

from whyidle.monitor.traces.model import Ids

# Most characters of all names of a file, and of one: a mangled kernel has some thousands.
MOST_CHARACTERS: Final = 256 << 20
LONGEST_NAME: Final = 16 << 10
# No job has as many.
MOST_THREADS: Final = 4_096
MOST_DEVICES: Final = 256
OTHERS: Final = "(other names)"


class Names(dict[str, int]):
    """A number for each name; beyond the limit all new ones share one."""

    left = MOST_CHARACTERS

    def __missing__(self, name: str) -> int:
        cut = name[:LONGEST_NAME]
        if cut != name:
            return self[cut]
        self.left -= len(name) + 100
        if self.left < 0 and name != OTHERS:
            return self[OTHERS]
        self[name] = number = len(self)
        return number

    @property
    def full(self) -> bool:
        """Whether some names could not be kept."""
        return self.left < 0

    def column(self, names: Iterable[str]) -> Ids:
        """Return the numbers of these names."""
        return np.frombuffer(array("i", map(self.__getitem__, names)), np.int32)


Key = TypeVar("Key", bound=Hashable)


class Keys(dict[Key, int]):
    """A number for each key: a thread, a device; beyond the limit all new ones are the last."""

    full = False

    def __init__(self, most: int) -> None:
        self._most = most

    def __missing__(self, key: Key) -> int:
        if len(self) >= self._most:
            self.full = True
            return self._most - 1
        self[key] = number = len(self)
        return number

    def column(self, keys: Iterable[Key]) -> Ids:
        """Return the numbers of these keys."""
        return np.frombuffer(array("i", map(self.__getitem__, keys)), np.int32)

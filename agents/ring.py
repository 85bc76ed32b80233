"""The way from the job's threads to the agent's: adding never waits and never grows without end."""

from __future__ import annotations

from collections import deque
from itertools import count, repeat, starmap
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

CAPACITY = 8192
# Items that ``drain`` takes while it keeps Python's lock: a tenth of a millisecond.
AT_ONCE = 4096


class Ring:
    """Records on their way to the spool; when full the newest is dropped and counted."""

    __slots__ = ("_capacity", "_losses", "_reads", "_records")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._records: deque[list[Any]] = deque()
        # One step of C, so that threads cannot lose each other's counts as they would with +=.
        self._losses = count()
        self._reads = 0

    def put(self, record: list[Any]) -> None:
        """Add a record, from any thread. Threads that meet at the bound may pass it by a few."""
        if len(self._records) >= self._capacity:
            next(self._losses)
        else:
            self._records.append(record)

    def take(self) -> list[list[Any]]:
        """Take out what is there now; from one thread only."""
        pop = self._records.popleft
        return [pop() for _ in range(len(self._records))]

    def lost(self) -> int:
        """Return how many found no room so far; from one thread only."""
        found = next(self._losses) - self._reads
        self._reads += 1
        return found


def drain(items: deque[T], number: int) -> list[T]:
    """Take out so many of the oldest items, which must be there.

    All in C: hooks may have put in tens of thousands since the last second.
    """
    found: list[T] = []
    for left in range(number, 0, -AT_ONCE):
        found.extend(starmap(items.popleft, repeat((), min(left, AT_ONCE))))
    return found

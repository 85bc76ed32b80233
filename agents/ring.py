"""The way from the job's threads to the agent's: adding never waits and never grows without end."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any

CAPACITY = 8192


class Ring:
    """Records on their way to the spool; when full the newest is dropped and counted."""

    __slots__ = ("_capacity", "_looks", "_losses", "_records")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._records: deque[list[Any]] = deque()
        # One step of C, so that threads cannot lose each other's counts as they would with +=.
        self._losses = count()
        self._looks = 0

    def put(self, record: list[Any]) -> None:
        """Add a record, from any thread. Threads that meet at the bound may pass it by a few."""
        if len(self._records) >= self._capacity:
            next(self._losses)
        else:
            self._records.append(record)

    def take(self) -> list[list[Any]]:
        """Take out what is there now; one thread only."""
        pop = self._records.popleft
        return [pop() for _ in range(len(self._records))]

    def lost(self) -> int:
        """Return how many found no room, ever; one thread only."""
        found = next(self._losses) - self._looks
        self._looks += 1
        return found

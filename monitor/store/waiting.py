"""The queue in memory while the disk, or another process, keeps us from writing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from whyidle.monitor.core.reading import Tick

# Ten minutes at 1 Hz: bounds the memory that a full disk costs.
QUEUE_TICKS: Final = 600
Statement: TypeAlias = tuple[str, Sequence[object]]


@dataclass(slots=True)
class Waiting:
    """Ticks, with the events and row changes between them."""

    ticks: deque[tuple[int, Tick]] = field(default_factory=deque)
    statements: deque[Statement] = field(default_factory=lambda: deque(maxlen=QUEUE_TICKS))
    dropped: int = 0

    def __bool__(self) -> bool:
        return bool(self.ticks or self.statements)

    def add(self, run: int, ticks: Iterable[Tick]) -> None:
        """Append ticks."""
        self.ticks.extend((run, tick) for tick in ticks)

    def by_run(self) -> dict[int, list[Tick]]:
        """Return the ticks of each run."""
        found: dict[int, list[Tick]] = {}
        for run, tick in self.ticks:
            found.setdefault(run, []).append(tick)
        return found

    def holds(self, run: int) -> bool:
        """Tell whether ticks of a run wait."""
        return any(waiting == run for waiting, _ in self.ticks)

    def trim(self) -> None:
        """Drop the oldest ticks if there are too many."""
        while len(self.ticks) > QUEUE_TICKS:
            self.ticks.popleft()
            self.dropped += 1

    def give_up(self) -> None:
        """Drop everything: it can never be written."""
        self.dropped += len(self.ticks)
        self.clear()

    def clear(self) -> None:
        """Forget everything: it is in the file."""
        self.ticks.clear()
        self.statements.clear()

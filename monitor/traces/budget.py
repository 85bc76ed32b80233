"""The account of one device: every instant of a window belongs to one cause."""

from __future__ import annotations

from dataclasses import dataclass

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Ids, Ints, Kinds, Table


@dataclass(slots=True)
class Segments(Table):
    """Contiguous pieces of a window, in order."""

    start: Ints
    end: Ints
    cause: Kinds  # a Cause
    thread: Ids  # the host thread that the device waits for; -1 where it waits for none


@dataclass(slots=True)
class Budget:
    """How the time between the first and the last segment divides."""

    segments: Segments

    def sums(self, start: int | None = None, end: int | None = None) -> dict[Cause, int]:
        """Return the ticks of each cause, within these bounds where they are given."""
        raise NotImplementedError

"""Turn totals that only grow into rates, without inventing a value at the start or at a reset."""

from __future__ import annotations

from collections.abc import Hashable


class Rates:
    """Remembers the last total of each series."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}

    def per_second(
        self, series: Hashable, now: float, total: float, wraps_at: float | None = None
    ) -> float | None:
        """Return the growth per second since the last call, ``None`` when there is none to tell."""
        before = self._last.get(series)
        self._last[series] = (now, total)
        if before is None or now <= before[0]:
            return None
        grown = total - before[1]
        if grown < 0 and wraps_at is not None and before[1] < wraps_at:
            grown += wraps_at
        return None if grown < 0 else grown / (now - before[0])

    def forget(self, series: Hashable) -> None:
        """Drop a series whose subject has ended."""
        self._last.pop(series, None)

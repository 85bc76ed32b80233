"""Turn growing totals into rates, without inventing a value at the start or at a reset."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass


class Rates:
    """Remembers the last total of each series."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}

    def per_second(
        self, series: Hashable, now: float, total: float, wraps_at: float | None = None
    ) -> float | None:
        """Return the growth per second since the last call, ``None`` when it is unknown."""
        before = self._last.get(series)
        self._last[series] = (now, total)
        if before is None or now <= before[0]:
            return None
        grown = total - before[1]
        if grown < 0 and wraps_at is not None and before[1] < wraps_at:
            grown += wraps_at
        return None if grown < 0 else grown / (now - before[0])

    def since(self, series: Hashable) -> float | None:
        """Return when the last total of a series was taken."""
        before = self._last.get(series)
        return None if before is None else before[0]

    def share(self, series: Hashable, part: float, whole: float) -> float | None:
        """Return the growth of a part as a share of the whole's; 0 where nothing grew."""
        before = self._last.get(series)
        self._last[series] = (whole, part)
        if before is None or whole < before[0] or part < before[1]:
            return None
        grown = whole - before[0]
        return min(1.0, (part - before[1]) / grown) if grown else 0.0

    def forget(self, series: Hashable) -> None:
        """Drop a series whose subject has ended."""
        self._last.pop(series, None)


@dataclass(frozen=True, slots=True)
class Used:
    """What one process has used: itself, and the children that it has reaped."""

    own: float
    reaped: float
    parent: Hashable | None


class TreeRate:
    """The use of a whole process tree, including processes that lived between two samples.

    When a process is reaped, the kernel adds all its use to the ``reaped`` of its parent. What was
    counted while it lived is due from that growth: else it would count twice.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, Used] = {}
        # Due from the next growth of a process: what it surely holds by now, and what the sampling,
        # which takes a moment, may have been too early to see.
        self._due: dict[Hashable, float] = {}
        self._at: float | None = None
        self._owed = 0.0

    def per_second(
        self,
        now: float,
        members: Mapping[Hashable, Used],
        new: frozenset[Hashable] = frozenset(),
        most: float | None = None,
    ) -> float | None:
        """Return the use per second since the last call, ``None`` at the first call.

        Among processes seen for the first time, only the ``new`` ones count with their use so far.
        Use that arrives late, all at once, and exceeds what a second allows, is spread.
        """
        self._owed += self._grown(members, new)
        since, self._at = self._at, now if self._at is None else max(now, self._at)
        if since is None or now <= since:
            return None
        given = self._owed / (now - since)
        if most is not None:
            given = min(given, most)
        self._owed = max(0.0, self._owed - given * (now - since))
        return given

    def _grown(self, members: Mapping[Hashable, Used], new: frozenset[Hashable]) -> float:
        fresh = self._inherited(members)
        grown, left = 0.0, {}
        for key, used in members.items():
            before = self._last.get(key)
            if before is None:
                grown += used.own + used.reaped if key in new else 0.0
                continue
            gained = max(0.0, used.reaped - before.reaped)
            due = self._due.get(key, 0.0) + fresh.get(key, 0.0)
            grown += max(0.0, used.own - before.own) + max(0.0, gained - due)
            # Only what fell due just now may still come: a process outside reaped the rest.
            if rest := min(fresh.get(key, 0.0), max(0.0, due - gained)):
                left[key] = rest
        self._last, self._due = dict(members), left
        return grown

    def _inherited(self, members: Mapping[Hashable, Used]) -> dict[Hashable, float]:
        """Return what was counted of ended processes, by the live process that holds it now."""
        fresh: dict[Hashable, float] = {}
        for key in self._last.keys() - members.keys():
            gone = self._last[key]
            heir = self._heir(key, members)
            if heir is not None:
                counted = gone.own + gone.reaped + self._due.pop(key, 0.0)
                fresh[heir] = fresh.get(heir, 0.0) + counted
        return fresh

    def _heir(self, key: Hashable, members: Mapping[Hashable, Used]) -> Hashable | None:
        """Return the nearest live ancestor: a parent that ended too has handed all upwards."""
        heir: Hashable | None = key
        for _ in range(len(self._last)):
            if heir is None or heir in members:
                return heir
            heir = self._last[heir].parent if heir in self._last else None
        return None

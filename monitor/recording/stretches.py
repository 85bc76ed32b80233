"""The steps of a whole recording in a few stretches of time, in their order.

How much one stretch differs from another is how certain the time of a step is: who compares two
recordings needs that, and neither a median nor a spread of all steps together tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whyidle.monitor.recording.spread import quantile, quantiles

# A stretch is a second or so at first. When there are too many, two and two become one.
MOST: int = 64
# Durations that stand for all of a stretch.
PICKS = 32
_SHARES = [(i + 0.5) / PICKS for i in range(PICKS)]


@dataclass(slots=True)
class _Stretch:
    steps: int
    ns: int
    records: int
    picks: list[tuple[float, float]]

    def add(self, other: _Stretch) -> None:
        self.steps += other.steps
        self.ns += other.ns
        self.records += other.records
        both = [*self.picks, *other.picks]
        if len(both) > PICKS:
            weight = sum(each for _, each in both) / PICKS
            both = [(ns, weight) for ns in quantiles(both, _SHARES) if ns is not None]
        self.picks = both


class Stretches:
    """Takes the steps of one process; what came before its first record is in none of them."""

    def __init__(self) -> None:
        self._found: list[_Stretch] = []
        # Records in each but the last.
        self._each = 1
        self._last: int | None = None

    def begin(self) -> None:
        """Another agent tells from now on: the time between is nobody's."""
        self._last = None

    def take(self, at_ns: int, steps: int, durations: Sequence[int]) -> None:
        """Add steps that ended between the last call and this one."""
        last, self._last = self._last, at_ns
        known = [ns for ns in durations if ns]
        if last is None or at_ns <= last or not known:
            return
        weight = steps / len(known)
        # Of slow steps all are told: a second holds two of them, then one, and its length misleads.
        took = sum(known) if len(known) == steps else at_ns - last
        new = _Stretch(steps, took, 1, [])
        new.add(_Stretch(0, 0, 0, [(ns, weight) for ns in known]))
        if self._found and self._found[-1].records < self._each:
            self._found[-1].add(new)
            return
        self._found.append(new)
        if len(self._found) > MOST:
            self._halve()

    def told(self) -> list[list[int]]:
        """Return of each how many steps it has, how long they took, and the middle one of them."""
        return [
            [each.steps, each.ns, round(middle)]
            for each in self._found
            if (middle := quantile(each.picks, 0.5)) is not None
        ]

    def _halve(self) -> None:
        self._each *= 2
        pairs = [self._found[i : i + 2] for i in range(0, len(self._found), 2)]
        for pair in pairs:
            for other in pair[1:]:
                pair[0].add(other)
        self._found = [pair[0] for pair in pairs]

"""What one process has done since the recording began, over all of its agents.

The store knows every tick, and forgets what ended between two of them; here is the whole.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from whyidle.agents import wire
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.metrics import METRICS, STEP_BOUNDS_S
from whyidle.monitor.link.records import Gauges, Steps
from whyidle.monitor.runs.training import LOOP

# Bins to a doubling: a value read back is within 1.1% of what it was.
BINS = 32
# Nothing that we time takes longer; what claims to is put there.
LONGEST_NS = 10**16
# The bins of what is shorter than all, and longer.
_OUT = (0, int(BINS * math.log2(LONGEST_NS)))


def quantiles(weighed: list[tuple[float, float]], shares: Sequence[float]) -> list[float | None]:
    """Return the least values that these shares of the weight do not exceed."""
    ordered = sorted(weighed)
    reached = list(accumulate([weight for _, weight in ordered]))
    if not reached or not reached[-1]:
        return [None] * len(shares)
    # Sums of fractions: a hair less than the whole must do.
    places = (bisect_left(reached, share * reached[-1] * (1 - 1e-9)) for share in shares)
    return [ordered[place][0] for place in places]


def quantile(weighed: list[tuple[float, float]], share: float) -> float | None:
    """Return the least value that this share of the weight does not exceed."""
    return quantiles(weighed, (share,))[0]


class Spread:
    """Durations of a whole recording, in bins that grow with them: few, whatever comes."""

    def __init__(self) -> None:
        self._bins: dict[int, float] = {}

    def add(self, durations: Sequence[int], weight: float) -> None:
        """Count some durations, in ns; each stands for as many."""
        bins = self._bins
        for ns in durations:
            place = int(BINS * math.log2(ns)) if 1 <= ns <= LONGEST_NS else _OUT[ns > 1]
            bins[place] = bins.get(place, 0.0) + weight

    def quantile(self, share: float) -> float | None:
        """Return the duration that this share of them does not exceed, in ns."""
        return quantile(self._weighed(), share)

    def histogram(self) -> tuple[list[int], int]:
        """Return how many took no longer than each bound, and all; and how long all took, in ns."""
        weighed = self._weighed()
        bounds = (*(s * 1e9 for s in STEP_BOUNDS_S), math.inf)
        counts = [round(sum(n for ns, n in weighed if ns <= bound)) for bound in bounds]
        return counts, round(sum(ns * n for ns, n in weighed))

    def _weighed(self) -> list[tuple[float, float]]:
        return [(2 ** ((i + 0.5) / BINS), n) for i, n in self._bins.items()]


# A stretch is a second or so at first. When there are too many, two and two become one.
MOST_STRETCHES = 64
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
        """Another agent counts from now on: the time between is nobody's."""
        self._last = None

    def take(self, at_ns: int, steps: int, durations: Sequence[int]) -> None:
        """Add steps that ended between the last call and this one."""
        last, self._last = self._last, at_ns
        known = [ns for ns in durations if ns]
        if last is None or at_ns <= last or not known:
            return
        weight = steps / len(known)
        # Of slow steps all are sent: a second holds two of them, then one, and its length misleads.
        took = sum(known) if len(known) == steps else at_ns - last
        new = _Stretch(steps, took, 1, [])
        new.add(_Stretch(0, 0, 0, [(ns, weight) for ns in known]))
        if self._found and self._found[-1].records < self._each:
            self._found[-1].add(new)
            return
        self._found.append(new)
        if len(self._found) > MOST_STRETCHES:
            self._halve()

    def as_json(self) -> list[list[int]]:
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


TOTALS = tuple(x.gauge.key for x in METRICS if x.gauge is not None and x.gauge.in_run)


class ProcessTotals:
    """The sums of one process."""

    def __init__(self) -> None:
        self.steps = 0
        # What marked the last of them, and in which unit.
        self.source: str | None = None
        self._unit = 0
        self._spread = Spread()
        self._stretches = Stretches()
        # Of each total: what it grew by, and in how long.
        self._grown: dict[str, tuple[float, float]] = {}
        self._last: dict[str, tuple[float, float]] = {}

    def begin(self) -> None:
        """Another agent counts from now on, from its own start."""
        self._last.clear()
        self._stretches.begin()

    def take_steps(self, steps: Steps) -> None:
        """Count steps; of more than one kind of step the last kind counts."""
        if (steps.source, steps.unit) != (self.source, self._unit):
            self.steps, self._spread, self._stretches = 0, Spread(), Stretches()
        self.source, self._unit = steps.source, steps.unit
        self.steps += steps.count
        if steps.durations:
            self._spread.add(steps.durations, steps.count / len(steps.durations))
        self._stretches.take(steps.t, steps.count, steps.durations)

    def take_gauges(self, gauges: Gauges) -> None:
        """Take in totals; they count from the first time that we saw them."""
        now = gauges.t / 1e9
        for name in TOTALS:
            total = gauges.values.get(name)
            if total is None or not 0 <= total < 2**63 or (name == wire.SAMPLES and not total):
                # Samples a second are over the time in which there were any to count.
                continue
            before = self._last.get(name, (now, total))
            self._last[name] = now, total
            if now < before[0] or total < before[1]:
                continue
            grown, seconds = self._grown.get(name, (0.0, 0.0))
            self._grown[name] = grown + total - before[1], seconds + now - before[0]

    def as_json(self) -> JsonObject:
        """Return it as it is kept."""
        counts, took = self._spread.histogram()
        # Of a loop only means are known: the longest steps are not among them.
        timed = self.source != LOOP
        return {
            "steps": self.steps if self.source else None,
            "source": self.source,
            "step_p50_ns": _whole(self._spread.quantile(0.5)),
            "step_p95_ns": _whole(self._spread.quantile(0.95)) if timed else None,
            "step_counts": counts if counts[-1] and timed else [],
            "step_sum_ns": took,
            "stretches": self._stretches.as_json(),
            "totals": {
                name: [_whole(min(grown, 2.0**62)), round(seconds, 3)]
                for name, (grown, seconds) in self._grown.items()
                if seconds
            },
        }


def has_any(sums: Mapping[str, Any]) -> bool:
    """Tell whether anything was counted at all."""
    return sums["steps"] is not None or bool(sums["totals"])


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)

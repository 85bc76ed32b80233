"""How long things took, many of them merged: the value that a share of them stays under."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

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
        return quantile([(2 ** ((i + 0.5) / BINS), n) for i, n in self._bins.items()], share)

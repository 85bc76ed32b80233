"""The interval of a ratio, looked at several times by a rule that is fixed beforehand.

Each value is the logarithm of one pair of neighbouring blocks: how many times longer a step took
without the change than with it. Whoever looks several times and stops when he likes what he sees is
wrong more often than once in twenty; so each look spends a part of that one in twenty, the first
ones little (alpha = 0.05 t^2, Kim and DeMets 1987). The parts add up whatever the values have to do
with each other (Bonferroni), so the interval of every look holds at any stop.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from whyidle.monitor.core.contracts.trying import TryVerdict

ALPHA: Final = 0.05
# When it is looked, as parts of all pairs; and with how many pairs at the least.
LOOKS: Final = (0.25, 0.4, 0.6, 0.8, 1.0)
FEWEST: Final = 6
# What nobody would change a program for.
SMALL: Final = 0.02
# An interval is narrow enough at this half width, or at a part of the effect.
NARROW: Final = 0.05
PART: Final = 0.25


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many times faster the job is with the change, and the ends that chance leaves to it."""

    low: float
    middle: float
    high: float
    pairs: int

    @property
    def verdict(self) -> TryVerdict:
        """What is certain."""
        if self.low > 1:
            return "faster"
        if self.high < 1:
            return "slower"
        if self.low > 1 - SMALL and self.high < 1 + SMALL:
            return "no difference"
        return "not certain"

    @property
    def is_enough(self) -> bool:
        """Tell whether more pairs would say nothing that matters."""
        if self.verdict == "no difference":
            return True
        half = math.log(self.high / self.low) / 2
        return self.verdict != "not certain" and half <= max(
            NARROW, PART * abs(math.log(self.middle))
        )


def looks(pairs: int) -> list[int]:
    """Return after how many pairs it is looked."""
    return sorted({max(FEWEST, math.ceil(part * pairs)) for part in LOOKS if pairs >= FEWEST})


class Looks:
    """Looks at the values as they come; the looks are fixed when it is made."""

    def __init__(self, pairs: int) -> None:
        self.looks = looks(pairs)
        self._pairs = pairs

    def at(self, values: Sequence[float]) -> Estimate | None:
        """Return the interval if it is time to look; ``None``: not yet."""
        return self.now(values) if len(values) in self.looks else None

    def now(self, values: Sequence[float]) -> Estimate | None:
        """Return the interval of what there is, as of the next look; ``None``: of too little.

        A try that ends early stops at a moment that the values did not choose, or that a guard
        chose for them: it is given no more than the next look would have.
        """
        number = len(values)
        if number < 3:
            return None
        return interval(values, self._level(number))

    def _level(self, number: int) -> float:
        """Return what the look at or after this number of pairs spends."""
        spent, before = 0.0, 0.0
        for look in self.looks:
            until = ALPHA * (look / self._pairs) ** 2
            spent, before = until - before, until
            if look >= number:
                break
        return spent or ALPHA / len(LOOKS)


def interval(values: Sequence[float], level: float) -> Estimate:
    """Return Student's interval of the mean logarithm, as ratios."""
    number = len(values)
    mean = statistics.fmean(values)
    half = student(1 - level / 2, number - 1) * statistics.stdev(values) / math.sqrt(number)
    return Estimate(math.exp(mean - half), math.exp(mean), math.exp(mean + half), number)


def student(share: float, freedom: int) -> float:
    """Return the quantile of Student's distribution, by halving: exact also far out."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        if _below(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _below(t: float, freedom: int) -> float:
    """Return the share below t >= 0, as a finite sum (Abramowitz and Stegun 26.7)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * k) / (2 * k + 1)
        between = 2 / math.pi * (angle + sine * total)
    else:
        term, total = 1.0, 0.0
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * k - 1) / (2 * k)
        between = sine * total
    return 0.5 + between / 2

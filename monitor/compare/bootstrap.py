"""How certain a difference is: resampling of two samples, with a fixed seed.

Samples come in the order of time, and neighbours are alike: short blocks of neighbours are drawn,
not single values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

SEED: Final = 20_240_229
RESAMPLES: Final = 4000
# Of so many intervals one misses the truth in twenty.
CONFIDENCE: Final = 0.95
# Fewer samples say nothing of how much they differ by chance.
LEAST: Final = 5

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with the bounds that chance leaves to it; where they are not known, why."""

    low: float | None
    middle: float
    high: float | None
    why_no_bounds: str | None = None

    def excludes(self, value: float) -> bool:
        """Tell whether it is certain not to be this value."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high

    @property
    def ends(self) -> list[float | None]:
        """Its low end, middle and high end."""
        return [self.low, self.middle, self.high]


@dataclass(frozen=True, slots=True)
class Samples:
    """Values in the order of time, and how much each stands for."""

    values: Floats
    weights: Floats

    @classmethod
    def of(cls, values: list[float], weights: list[float] | None = None) -> Samples:
        """Return samples; each stands for one unless given otherwise."""
        found = np.asarray(values, dtype=np.float64)
        return cls(found, np.ones_like(found) if weights is None else np.asarray(weights, float))

    def __len__(self) -> int:
        return len(self.values)

    def medians(self, rng: np.random.Generator) -> Floats:
        """Return the median of each resample."""
        drawn = self._drawn(rng)
        return _medians(self.values[drawn], self.weights[drawn])

    def means(self, rng: np.random.Generator) -> Floats:
        """Return the mean of each resample."""
        drawn = self._drawn(rng)
        weights = self.weights[drawn]
        found: Floats = (self.values[drawn] * weights).sum(axis=1) / weights.sum(axis=1)
        return found

    @property
    def median(self) -> float:
        """The value that half of the weight does not exceed."""
        return float(_medians(self.values[None], self.weights[None])[0])

    @property
    def mean(self) -> float:
        """The mean."""
        return float(np.average(self.values, weights=self.weights))

    def _drawn(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Return which samples each resample has, in blocks of neighbours."""
        number = len(self)
        block = max(1, round(math.sqrt(number) / 2))
        starts = rng.integers(0, number, size=(RESAMPLES, -(-number // block)))
        drawn: NDArray[np.intp] = (starts[..., None] + np.arange(block)) % number
        return drawn.reshape(RESAMPLES, -1)[:, :number]


def _medians(values: Floats, weights: Floats) -> Floats:
    """Return the weighted median of each row; halfway where it lies between two values."""
    order = np.argsort(values, axis=1)
    values = np.take_along_axis(values, order, axis=1)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    # A hair around the half: sums of fractions.
    half = reached[:, -1:] / 2
    low = (reached < half * (1 - 1e-9)).sum(axis=1)
    high = (reached <= half * (1 + 1e-9)).sum(axis=1)
    rows = np.arange(len(values))
    last = values.shape[1] - 1
    found: Floats = (values[rows, np.minimum(low, last)] + values[rows, np.minimum(high, last)]) / 2
    return found


@dataclass(frozen=True, slots=True)
class Compared:
    """One statistic of two samples: of each, how many times a is b, and b minus a."""

    a: Interval
    b: Interval
    ratio: Interval
    difference: Interval


def medians(a: Samples, b: Samples) -> Compared:
    """Compare the middle values."""
    return _compared(a, b, Samples.medians, (a.median, b.median), 0.5 - CONFIDENCE / 2)


def means(a: Samples, b: Samples) -> Compared:
    """Compare the means: of few samples their bounds are drawn wider, as Student's are."""
    return _compared(a, b, Samples.means, (a.mean, b.mean), _wider(min(len(a), len(b))))


def median(samples: Samples) -> Interval:
    """Return the middle value of one sample."""
    return _alone(samples, Samples.medians, samples.median, 0.5 - CONFIDENCE / 2)


def mean(samples: Samples) -> Interval:
    """Return the mean of one sample."""
    return _alone(samples, Samples.means, samples.mean, _wider(len(samples)))


def too_few(number: int) -> str:
    """Say why so few samples have no bounds."""
    return f"{number} {'sample' if number == 1 else 'samples'} of the time of a step: too few"


def _alone(
    samples: Samples,
    statistic: Callable[[Samples, np.random.Generator], Floats],
    middle: float,
    tail: float,
) -> Interval:
    if len(samples) < LEAST:
        return Interval(None, middle, None, too_few(len(samples)))
    return _interval(statistic(samples, np.random.default_rng(SEED)), middle, tail, None)


def _compared(
    a: Samples,
    b: Samples,
    statistic: Callable[[Samples, np.random.Generator], Floats],
    middles: tuple[float, float],
    tail: float,
) -> Compared:
    rng = np.random.default_rng(SEED)
    drawn = [statistic(each, rng) for each in (a, b)]
    why = [too_few(len(each)) if len(each) < LEAST else None for each in (a, b)]
    either = why[0] or why[1]
    first, second = middles
    return Compared(
        _interval(drawn[0], first, tail, why[0]),
        _interval(drawn[1], second, tail, why[1]),
        _interval(drawn[0] / drawn[1], first / second, tail, either),
        _interval(drawn[1] - drawn[0], second - first, tail, either),
    )


def _interval(drawn: Floats, middle: float, tail: float, why: str | None) -> Interval:
    if why is not None:
        return Interval(None, middle, None, why)
    low, high = (float(each) for each in np.quantile(drawn, [tail, 1 - tail]))
    # The middle of a sample may lie just outside of those of its resamples.
    return Interval(min(low, middle), middle, max(high, middle))


def _wider(number: int) -> float:
    """Return the tail at which a bootstrap of few samples covers as often as it claims.

    Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section 5.3.
    """
    if number < 2:
        return 0.5 - CONFIDENCE / 2
    return NormalDist().cdf(-math.sqrt(number / (number - 1)) * _student(number - 1))


def _student(freedom: int) -> float:
    """Return Student's quantile, by the first terms of its expansion around the normal one."""
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / math.pow(freedom, i + 1) for i, term in enumerate(terms))

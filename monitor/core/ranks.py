"""Ranks that share collectives: who comes last, how long the others wait, and whether it is chance.

A collective ends on all of its ranks at once, so whoever enters it first stays in it longest.
Nothing is asked but when each rank arrived, counted from the first arrival to the same collective:
no clocks need to agree. The same arithmetic serves files of a folder and processes of a host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Part of a step: half of what the smallest planted straggler that must be named takes (5%, see
# tests/core/test_ranks.py), and more than a healthy job's ranks differ by on average.
LEAST: Final = 0.02
# In so many jobs whose ranks differ by chance alone a rank may be named: 1 of 500.
CHANCE: Final = 0.002
# Redrawn orders of the ranks, and most numbers drawn for them: a second of work.
_DRAWS: Final = 999
_MOST_DRAWN: Final = 20_000_000
_SEED: Final = 20_240_229
# Nine of ten means lie so many standard errors around the truth.
_ERRORS: Final = 1.645
# A rank that is late by half as much as the latest is late as it is: one host, one switch.
_ALIKE: Final = 0.5
FEW_STEPS: Final = "too few steps to tell a late rank from chance"


@dataclass(frozen=True, slots=True)
class Who:
    """A rank, by all that is known of it."""

    rank: int | None = None
    pid: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When ranks came to collectives.

    ``late[collective, rank]`` is in nanoseconds after the first to come, NaN for a rank that was
    not in it. ``step`` says in which step each collective was. ``exposed`` is how much of its wait
    nothing covered, for each rank; ``None``: all of it.
    """

    who: Sequence[Who]
    late: Floats
    step: Ints
    step_ns: float
    exposed: Floats | None = None
    # What each collective is, as "AllReduce f32 4 MB".
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RankShare:
    """One rank among the others; parts of a step's time, as ranges."""

    rank: int | None
    pid: int | None
    host: str | None
    # The part of its collectives that it came last to.
    last: float
    # How long the others waited for it in a step: without what computing covered, and with it.
    late: tuple[float, float]
    # How long it waited itself.
    waits: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks, and the one that the others wait for, if that is no chance."""

    each: tuple[RankShare, ...] = ()
    straggler: RankShare | None = None
    # Others that are late as it is: those of one host, for example.
    alike: tuple[RankShare, ...] = ()
    collectives: int = 0
    steps: int = 0
    step_ns: float = 0.0
    # The straggler's part by kind of collective, the largest first; the parts add up to one.
    kinds: Mapping[str, float] = field(default_factory=dict)
    # In so many of a thousand jobs without a late rank chance alone does this.
    chance: float | None = None
    # Why no rank is named.
    reason: str = ""


def judge(arrivals: Arrivals) -> Ranks:
    """Say who is late, and name a rank where it is neither little nor chance."""
    late = arrivals.late
    shared: Flags = (~np.isnan(late)).sum(axis=1) > 1
    if late.shape[1] < 2 or not shared.any() or arrivals.step_ns <= 0:
        return Ranks(reason="no collective was seen on two ranks")
    shares = _Shares.of(arrivals, shared)
    mean = shares.hidden.mean(axis=0) / arrivals.step_ns
    worst = int(mean.argmax())
    found = Ranks(
        each=tuple(shares.one(i, who) for i, who in enumerate(arrivals.who)),
        collectives=int(shared.sum()),
        steps=len(shares.known),
        step_ns=arrivals.step_ns,
        chance=chance_of(shares.hidden, worst),
    )
    if reason := _why_none(found, float(mean[worst]), shares.hidden):
        return replace(found, reason=reason)
    alike = np.flatnonzero(mean >= max(LEAST, _ALIKE * mean[worst])).tolist()
    return replace(
        found,
        straggler=found.each[worst],
        alike=tuple(found.each[i] for i in alike if i != worst),
        kinds=shares.kinds(arrivals, shared, worst),
    )


def _why_none(found: Ranks, late: float, of_steps: Floats) -> str:
    if late < LEAST:
        return f"no rank keeps the others waiting for {LEAST:.0%} of a step"
    if found.chance is None or found.chance <= CHANCE:
        return ""
    steps, ranks = of_steps.shape
    # The least that drawing anew could say of so few.
    if float(ranks) ** (1 - steps) > CHANCE:
        return FEW_STEPS
    return "who comes last changes: no rank does so more than by chance"


@dataclass(frozen=True, slots=True)
class _Shares:
    """The columns from which the share of each rank is made."""

    late: Floats  # by collective
    waits: Floats
    exposed: Floats
    step: Ints  # of each collective, counted from 0 on
    hidden: Floats  # by step: how late each rank is by all waits
    bare: Floats  # and by those that nothing covers
    known: Flags
    step_ns: float

    @classmethod
    def of(cls, arrivals: Arrivals, shared: Flags) -> _Shares:
        """Turn arrivals into waits, and waits into lateness in each step."""
        late, step = arrivals.late[shared], np.unique(arrivals.step[shared], return_inverse=True)[1]
        waits = np.nanmax(late, axis=1, keepdims=True) - late
        exposed = waits if arrivals.exposed is None else np.minimum(arrivals.exposed[shared], waits)
        known: Flags = _per_step((~np.isnan(waits)).astype(np.float64), step) > 0
        hidden, bare = (
            _lateness(np.where(known, _per_step(each, step), np.nan)) for each in (waits, exposed)
        )
        return cls(late, waits, exposed, step, hidden, bare, known, arrivals.step_ns)

    def one(self, i: int, who: Who) -> RankShare:
        """Return what one rank does among the others."""
        mine = ~np.isnan(self.late[:, i])
        others = np.nanmax(np.delete(self.late, i, axis=1)[mine], axis=1)
        last = float((self.late[mine, i] > others).mean()) if mine.any() else 0.0
        steps = max(1, int(self.known[:, i].sum()))
        error = _ERRORS * float(self.hidden[:, i].std()) / math.sqrt(steps)
        ends = float(self.bare[:, i].mean()), float(self.hidden[:, i].mean())
        waits = (float(np.nansum(each[:, i])) / steps for each in (self.exposed, self.waits))
        return RankShare(
            rank=who.rank,
            pid=who.pid,
            host=who.host,
            last=last,
            late=self._range(min(ends) - error, max(ends) + error),
            waits=self._range(*waits),
        )

    def _range(self, low: float, high: float) -> tuple[float, float]:
        return max(0.0, low) / self.step_ns, max(0.0, high) / self.step_ns

    def kinds(self, arrivals: Arrivals, shared: Flags, worst: int) -> dict[str, float]:
        """Divide the lateness of a rank by what it came late to."""
        if not arrivals.labels:
            return {}
        names, of = np.unique(np.array(arrivals.labels)[shared], return_inverse=True)
        late = (self._late_to(of == i, worst) for i in range(len(names)))
        found = dict(zip(names.tolist(), late, strict=True))
        whole = sum(found.values()) or 1.0
        parts = {str(name): part / whole for name, part in found.items() if part}
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    def _late_to(self, rows: Flags, worst: int) -> float:
        step = np.unique(self.step[rows], return_inverse=True)[1]
        late = _lateness(_per_step(self.waits[rows], step))
        return max(0.0, float(late[:, worst].sum()))


def _per_step(values: Floats, step: Ints) -> Floats:
    """Add up the rows of each step; each step has some."""
    order = np.argsort(step, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(step[order]) > 0))
    found: Floats = np.add.reduceat(np.nan_to_num(values)[order], first, axis=0)
    return found


def _lateness(waits: Floats) -> Floats:
    """How much longer the others wait than each rank does: what they wait for it, in each step.

    Chance cancels out over the steps. A rank that comes late to one group since it waited in
    another has waited as long as the rest: it is a victim, and no straggler.
    """
    found = np.zeros_like(waits)
    for row, values in zip(found, waits, strict=True):
        known = np.flatnonzero(~np.isnan(values))
        if len(known) > 1:
            row[known] = _others(values[known]) - values[known]
    return found


def _others(values: Floats) -> Floats:
    """Return the median of all values but one, for each."""
    order = np.argsort(values, kind="stable")
    place = np.empty(len(values), np.int64)
    place[order] = np.arange(len(values))
    ordered, left = values[order], len(values) - 1
    low, high = (left - 1) // 2, left // 2
    found: Floats = (ordered[low + (place <= low)] + ordered[high + (place <= high)]) / 2
    return found


def chance_of(late: Floats, worst: int) -> float:
    """Return how often ranks that differ by chance alone are as late as the latest one.

    Either the names of the ranks are drawn anew in each step, which holds whatever the noise is
    like, or, where steps are too few for that, the steps of the latest are held against their own
    spread.
    """
    by_spread: float = late.shape[1] * _spread(late[:, worst])
    return min(1.0, by_spread, _redrawn(late, worst))


def _redrawn(late: Floats, worst: int) -> float:
    seen = float(late.mean(axis=0)[worst])
    draws = int(np.clip(_MOST_DRAWN // late.size, 1, _DRAWS))
    rng = np.random.default_rng(_SEED)
    # As much as the rounding of sums may differ.
    as_late = seen - 1e-9 * np.abs(late).mean()
    above = sum(rng.permuted(late, axis=1).mean(axis=0).max() >= as_late for _ in range(draws))
    return float(1 + above) / (1 + draws)


def _spread(late: Floats) -> float:
    """Return the probability of such a mean by Student's t."""
    steps = len(late)
    if steps < 3:
        return 1.0
    error = float(late.std(ddof=1)) / math.sqrt(steps)
    mean = float(late.mean())
    if error <= 0:
        return 0.0 if mean > 0 else 1.0
    # The density over the angle whose tangent is t / sqrt(df): a power of its cosine.
    freedom = steps - 1
    angle = np.linspace(0.0, np.pi / 2, 20_001)
    density = np.cos(angle) ** (freedom - 1)
    beyond = angle >= np.arctan(mean / error / np.sqrt(freedom))
    return float(density[beyond].sum() / density.sum() / 2) if mean > 0 else 1.0

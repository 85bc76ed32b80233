"""Steps that take longer and longer: from when to when, and at which lines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from whyidle.monitor.core.amounts import LEAST_POINTS, MOSTLY
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.runs.stacks import StackSamples, summed
from whyidle.monitor.store import Point

# Of 28 jobs that were watched, the healthy ones moved by 7% at most.
LEAST_RISE: Final = 1.15
# What comes more seldom than once a step is no part of it: a line of a log, a validation.
LEAST_EACH: Final = 1.0


@dataclass(frozen=True, slots=True)
class Drift:
    """How the time of a step went over a window."""

    # Medians of the first and the last third, and of all.
    early_s: float
    late_s: float
    median_s: float
    # 1: each is longer than all before it; 0: in no order; -1: shorter and shorter (Kendall).
    order: float
    # Where the main thread spends more of each step than before, with the share of the growth.
    lines: tuple[SourceLine, ...] = ()
    # What a step takes of the cores in the end, of what it took in the beginning.
    work: float | None = None
    # How much the places differ where the main thread is found in the last third and in the first,
    # of what they differ by chance.
    moved: float | None = None
    # What a step has more of than in the beginning, or less, by its name: how many times as much.
    grew: Mapping[str, float] = field(default_factory=dict)

    @property
    def rises(self) -> bool:
        """Whether steps take longer and longer."""
        return self.late_s >= LEAST_RISE * self.early_s and self.order >= MOSTLY


def drift_of(
    medians: Sequence[Point],
    stacks: Sequence[Mapping[str, Any]],
    cores: Sequence[Point] = (),
    paces: Sequence[Point] = (),
    counts: Mapping[str, Sequence[float]] | None = None,
) -> Drift | None:
    """Return how steps went; ``None``: too few are known.

    ``stacks`` come in their order; ``cores`` are those that the job ran on; ``counts`` how many of
    something a step has, by its name. Of a long and a short
    step in turns the median is the one or the other by chance: the steps in a second tell as well.
    """
    both = [p.mean for p in medians if p.mean], [1 / p.mean for p in paces if p.mean]
    known = [values for values in both if len(values) >= LEAST_POINTS]
    if not known:
        return None
    values = min(known, key=_rise)
    early, late = _ends(values)
    longer = late / early
    ran = [point.mean for point in cores if point.mean]
    return Drift(
        early,
        late,
        statistics.median(values),
        order=min(map(_order, known)),
        lines=_grown(stacks, early, late),
        work=longer * _rise(ran) if len(ran) >= LEAST_POINTS else None,
        moved=_moved(stacks),
        grew={
            name: _rise(each)
            for name, each in (counts or {}).items()
            if len(each) >= LEAST_POINTS and _ends(each)[0] >= LEAST_EACH
        },
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    third = len(values) // 3
    return statistics.median(values[:third]), statistics.median(values[-third:])


def _rise(values: Sequence[float]) -> float:
    early, late = _ends(values)
    return late / early


def _order(values: Sequence[float]) -> float:
    pairs = [(b > a) - (b < a) for a, b in combinations(values, 2)]
    return sum(pairs) / len(pairs)


def _grown(
    stacks: Sequence[Mapping[str, Any]], early_s: float, late_s: float
) -> tuple[SourceLine, ...]:
    third, whole = len(stacks) // 3, late_s - early_s
    if not third or whole <= 0:
        return ()
    # How much of a step each line takes.
    before, after = (
        {(x.file, x.line, x.function): x.share * step for x in StackSamples.of_events(part).lines()}
        for part, step in ((stacks[:third], early_s), (stacks[-third:], late_s))
    )
    more = summed((place, s - before.get(place, 0.0)) for place, s in after.items())
    return tuple(SourceLine(*at, min(1.0, s / whole)) for at, s in more.items() if s > 0)


def _moved(stacks: Sequence[Mapping[str, Any]]) -> float | None:
    third = len(stacks) // 3
    if not third:
        return None
    # The innermost lines, of libraries too, with their samples.
    before, after = (
        summed(
            (chain.innermost, counts.samples)
            for chain, counts in StackSamples.of_events(part).chains.items()
            if chain.innermost is not None
        )
        for part in (stacks[:third], stacks[-third:])
    )
    n, m = sum(before.values()), sum(after.values())
    if not n or not m:
        return None
    shares = [
        (before.get(place, 0.0) / n, after.get(place, 0.0) / m) for place in {*before, *after}
    ]
    apart = sum(abs(a - b) for a, b in shares) / 2
    means = [(a * n + b * m) / (n + m) for a, b in shares]
    # The mean of what is normal and has no sign.
    chance = sum(math.sqrt(2 / math.pi * p * (1 - p) * (1 / n + 1 / m)) for p in means) / 2
    return apart / chance if chance else None

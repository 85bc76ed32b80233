"""Which rank is late: the samples of all of them, stretch of time by stretch of time.

Apart from ``ranks.py``, as only a job of several ranks needs numpy for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from whyidle.monitor.core.amounts import LEAST_POINTS
from whyidle.monitor.core.ranks import Arrivals, Floats, Ranks, Who, judge
from whyidle.monitor.signals.ranks import FEW, RankAccount

# A stretch stands for a step, of any length.
_WHOLE: Final = 1e9


def compared(accounts: Sequence[RankAccount], *, ahead: bool) -> Ranks:
    """Say who keeps the others waiting, stretch by stretch.

    ``ahead``: hosts work ahead of their devices, so that what launches may be a wait, too.
    """
    stretches = _stretches([_looks(each) for each in accounts])
    if len(stretches) < LEAST_POINTS:
        return Ranks(reason=FEW)
    waits, launches, own = np.moveaxis(stretches / stretches.sum(axis=2, keepdims=True), 2, 0)
    works = own if ahead else own + launches
    late = (works - works.min(axis=1, keepdims=True)) * _WHOLE
    who = [Who(each.seen.rank, each.seen.pid) for each in accounts]
    exposed = waits * _WHOLE if ahead else None
    return judge(Arrivals(who, late, np.arange(len(late)), _WHOLE, exposed))


def _stretches(looks: Sequence[Floats]) -> Floats:
    """Return the samples of all ranks over stretches of time, each long enough to be a share."""
    seconds = min((len(each) for each in looks), default=0)
    if len(looks) < 2 or not seconds:
        return np.zeros((0, len(looks), 3))
    # The last ones: ranks are entered one after the other, and left together.
    found = np.stack([each[-seconds:] for each in looks], axis=1)
    seldom = found.sum(axis=2).mean(axis=0).min()
    length = int(min(np.ceil(LEAST_POINTS / max(seldom, 0.1)), max(1, seconds // LEAST_POINTS)))
    whole = seconds // length * length
    sums: Floats = found[-whole:].reshape(-1, length, len(looks), 3).sum(axis=1)
    seen: Floats = sums[(sums.sum(axis=2) > 0).all(axis=1)]
    return seen


def _looks(account: RankAccount) -> Floats:
    """Return in how many samples of each second it waited, launched, and was at its own work."""
    rng = np.random.default_rng(account.seen.rank)
    looks = np.zeros((max(1, account.seen.stacks.looks), 3))
    for when, *counts in account.chains:
        for column, samples in enumerate(counts):
            looks[:, column] += _spread(samples, when, len(looks), rng)
    return looks


def _spread(samples: float, when: int, looks: int, rng: np.random.Generator) -> Floats:
    """Divide the samples of a chain among the seconds in which it was seen.

    A run keeps in which these were, and not how many in each: they are drawn, so that they differ
    by as much as chance would have them. Evenly divided, every difference would be sure.
    """
    seen = np.array([when >> i & 1 for i in range(looks)], float)
    if not seen.any() or not samples:
        return np.zeros(looks)
    drawn = rng.multinomial(max(1, round(samples)), seen / seen.sum()).astype(float)
    found: Floats = drawn * (samples / drawn.sum())
    return found

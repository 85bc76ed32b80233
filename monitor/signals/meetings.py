"""Who came last to each collective of a moment, and what that rank did before.

A collective ends on all of its ranks at once: the last to come is in it for the shortest time, and
for so much longer as the others are in it they waited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.budgets.budget import Budget, Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Ints, Ops

_SLICES = np.array([list(Slice).index(cause.slice) for cause in Cause])


@dataclass(frozen=True, slots=True)
class Meeting:
    """A collective of several ranks; times as in the trace."""

    name: int  # of the names of the trace
    bytes: int
    ranks: int
    last: int  # which device came last, and when
    came: int
    ended: int
    waited: int  # the others, in the middle
    # What the last did since its collective before, and what it did for the most longer than others
    before: Mapping[Slice, int]
    longer: tuple[Slice, int] | None


@dataclass(frozen=True, slots=True)
class Meetings:
    """Those that most was waited in, in the order of time; ``count``: of all."""

    shown: Sequence[Meeting]
    count: int


def meetings(
    ops: Sequence[Ops], accounts: Sequence[Segments], start: int, end: int, most: int
) -> Meetings:
    """Return who came last to the collectives that the last joined between two moments."""
    # The parts of all devices in numbered collectives, those of one together.
    every = Ops.joined(ops)
    order = np.argsort(every.correlation, kind="stable")
    order = order[every.correlation[order] >= 0]
    rows = every.take(order)
    device = np.repeat(np.arange(len(ops)), [len(some) for some in ops])[order]
    first = np.flatnonzero(np.diff(rows.correlation, prepend=-1))
    if not len(first):
        return Meetings((), 0)
    count = np.diff(first, append=len(rows))
    took = rows.end - rows.start
    came = np.maximum.reduceat(rows.start, first)
    waited = np.add.reduceat(took, first) - count * np.minimum.reduceat(took, first)
    here = np.flatnonzero((count > 1) & (came >= start) & (came < end))
    worst = here[np.argsort(-waited[here], kind="stable")[:most]]
    ends = [np.sort(some.end) for some in ops]
    found = []
    for i in worst[np.argsort(came[worst])].tolist():
        within = np.arange(first[i], first[i] + count[i])
        found.append(_meeting(rows.take(within), device[within], accounts, ends, start))
    return Meetings(found, len(here))


def _meeting(
    of: Ops, device: Ints, accounts: Sequence[Segments], ends: Sequence[Ints], start: int
) -> Meeting:
    took = of.end - of.start
    at = int(np.argmin(took))
    others = np.arange(len(took)) != at
    before = np.array(
        [
            _before(accounts[each], ends[each], start, came)
            for each, came in zip(device.tolist(), of.start.tolist(), strict=True)
        ]
    )
    more = before[at] - np.median(before[others], axis=0)
    # That it waited less before is no work of its own.
    more[list(Slice).index(Slice.EXPOSED_COMM)] = 0
    most = int(np.argmax(more))
    return Meeting(
        name=int(of.name[at]),
        bytes=int(of.bytes[at]),
        ranks=len(took),
        last=int(device[at]),
        came=int(of.start[at]),
        ended=int(of.end.max()),
        waited=int(np.median(took[others] - took[at])),
        before={part: int(ns) for part, ns in zip(Slice, before[at], strict=True) if ns},
        longer=(list(Slice)[most], int(more[most])) if more[most] > 0 else None,
    )


def _before(account: Segments, ends: Ints, start: int, came: int) -> Ints:
    """Return what a rank did from the end of its collective before, by slice."""
    i = int(np.searchsorted(ends, came, "right"))
    since = max(start, int(ends[i - 1])) if i else start
    sums = Budget(account).sums(np.array([since]), np.array([came])) if since < came else {}
    found = np.zeros(len(Slice), np.int64)
    for cause, ticks in sums.items():
        found[_SLICES[cause]] += ticks
    return found

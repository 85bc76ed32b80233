"""When a device does nothing, and the launch that each gap waited for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from whyidle.monitor.traces.causes import DEVICE_CAUSES
from whyidle.monitor.traces.intervals import Timeline, following, sweep
from whyidle.monitor.traces.launches import BY_CORRELATION, UNKNOWN, Launches
from whyidle.monitor.traces.model import Flags, Ids, Ints, Ops, Table

# A trace whose operations start before their launches has two clocks: so many of them prove it,
# and all but the most extreme ones must come out in order.
SKEWED_SHARE = 0.01
SKEW_QUANTILE = 0.001
IDLE = len(DEVICE_CAUSES)


@dataclass(slots=True)
class Gaps(Table):
    """One row a gap."""

    start: Ints
    end: Ints
    returned: Ints  # when the call that launched the next operation returned, within the gap
    thread: Ids  # which launched it; where none is known, the thread that launches most
    early: Flags  # it was launched before the trace began
    tail: Flags  # nothing follows


@dataclass(frozen=True, slots=True)
class Facts:
    """What the account of any window must know of all that a device did."""

    skew: int  # ticks by which the host's clock runs ahead of the device's
    launchers: frozenset[int]
    busiest: int  # the thread that launches most; where nothing shows a launch, the main one
    first_known: int | None  # the start of the first operation whose launch is known

    @classmethod
    def of(cls, seen: Iterable[Seen], main: int) -> Self:
        """Put together what was seen of the device; ``main``: the most telling thread."""
        parts = list(seen)
        counts = np.sum([part.by_thread for part in parts], axis=0)
        first = [part.first_known for part in parts if part.first_known is not None]
        return cls(
            skew=clock_skew(
                np.concatenate([part.early for part in parts]), sum(part.count for part in parts)
            ),
            launchers=frozenset(np.flatnonzero(counts).tolist()),
            busiest=int(counts.argmax()) if counts.any() else main,
            first_known=min(first, default=None),
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """What one window shows of a device's launches."""

    count: int  # of operations with their calls
    early: Ints  # from call to operation, where that is less than nothing
    by_thread: Ints  # launches
    first_known: int | None

    @classmethod
    def of(cls, ops: Ops, launches: Launches, threads: int) -> Self:
        """Look at these operations of a job with so many threads."""
        exact, known = launches.how == BY_CORRELATION, launches.how != UNKNOWN
        thread = launches.thread[launches.thread >= 0]
        lag = ops.start[exact] - launches.start[exact]
        return cls(
            len(lag),
            lag[lag < 0],
            np.bincount(thread, minlength=threads),
            int(ops.start[known].min()) if known.any() else None,
        )


def device_line(ops: Ops, start: int, end: int) -> tuple[Timeline, Ints]:
    """Return what the device does at every instant of a window, and where each entry ends."""
    line = sweep(ops.start, ops.end, ops.kind, IDLE)
    if not len(line.time) or line.time[0] > start:
        line = Timeline(np.r_[start, line.time], np.r_[np.int8(IDLE), line.label], IDLE)
    elif line.time[0] < start:
        line = line.since(start)
    if line.time[-1] > end:
        inside = line.time < end
        line = Timeline(line.time[inside], line.label[inside], IDLE)
    return line, np.r_[line.time[1:], end]


def clock_skew(early: Ints, count: int) -> int:
    """Return by how much the host's clock runs ahead of the device's; 0 where nothing proves it.

    ``early``: from call to operation where that is less than nothing; of ``count`` operations.
    """
    if not count or len(early) / count <= SKEWED_SHARE:
        return 0
    extreme = int(count * SKEW_QUANTILE)
    return -int(np.partition(early, extreme)[extreme])


def gaps_of(start: Ints, end: Ints, ops: Ops, launches: Launches, facts: Facts) -> Gaps:
    """Return the gaps, each with the launch it waited for: that of the first operation after it."""
    first = following(ops.start, end)
    tail = first == len(ops)
    first = np.minimum(first, len(ops) - 1).astype(np.int64)
    launched = (launches.how.take(first) != UNKNOWN) & ~tail
    early = ~launched & ~tail
    early &= ops.start.take(first) < (
        ops.start[0] if facts.first_known is None else facts.first_known
    )
    thread = launches.thread.take(first)
    returned = np.where(launched, np.clip(launches.end.take(first), start, end), end)
    return Gaps(
        start=start,
        end=end,
        returned=np.where(early, start, returned),
        thread=np.where(launched, thread, facts.busiest).astype(np.int32),
        early=early,
        tail=tail,
    )


def set_back(launches: Launches, skew: int) -> Launches:
    """Bring the launches to the device's clock."""
    if not skew:
        return launches
    return replace(launches, start=launches.start - skew, end=launches.end - skew)

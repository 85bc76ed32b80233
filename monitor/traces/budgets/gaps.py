"""When a device does nothing, and the launch that each gap waited for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from whyidle.monitor.traces.causes import DEVICE_CAUSES
from whyidle.monitor.traces.intervals import Timeline, sweep
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


def device_line(ops: Ops, start: int, end: int) -> tuple[Timeline, Ints]:
    """Return what the device does at every instant of a window, and where each entry ends."""
    line = sweep(ops.start, ops.end, ops.kind, IDLE)
    if not len(line.time) or line.time[0] > start:
        line = Timeline(np.r_[start, line.time], np.r_[np.int8(IDLE), line.label], IDLE)
    return line, np.r_[line.time[1:], end]


def clock_skew(ops: Ops, launches: Launches) -> int:
    """Return by how much the host's clock runs ahead of the device's; 0 where nothing proves it."""
    known = launches.how == BY_CORRELATION
    lag = ops.start[known] - launches.start[known]
    if not len(lag) or np.mean(lag < 0) <= SKEWED_SHARE:
        return 0
    early = int(len(lag) * SKEW_QUANTILE)
    return max(0, -int(np.partition(lag, early)[early]))


def gaps_of(start: Ints, end: Ints, ops: Ops, launches: Launches, main: int) -> Gaps:
    """Return the gaps, each with the launch it waited for: that of the first operation after it."""
    following = np.minimum(np.searchsorted(ops.start, end), len(ops) - 1)
    tail = ops.start[following] != end
    known = launches.how != UNKNOWN
    launched = known[following] & ~tail
    first_known = int(ops.start[known].min()) if known.any() else int(ops.start[0])
    early = ~launched & ~tail & (end < first_known)
    thread = launches.thread[following]
    returned = np.where(launched, np.clip(launches.end[following], start, end), end)
    return Gaps(
        start=start,
        end=end,
        returned=np.where(early, start, returned),
        thread=np.where(launched, thread, main).astype(np.int32),
        early=early,
        tail=tail,
    )


def set_back(launches: Launches, skew: int) -> Launches:
    """Bring the launches to the device's clock."""
    return replace(launches, start=launches.start - skew, end=launches.end - skew)

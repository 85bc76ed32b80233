"""Dividing the time of a device: every instant of a window gets one cause.

A gap is closed by the first operation after it. Until the host call that launched that one
returned, the host kept the device waiting, and the account says with what; the rest of the gap is
the queue's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from whyidle.monitor.traces.budgets.budget import Budget, Segments
from whyidle.monitor.traces.budgets.gaps import IDLE, Facts, Gaps, device_line, gaps_of, set_back
from whyidle.monitor.traces.budgets.hosts import HOLE_NS, OTHERS, HostTimelines
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.intervals import aligned
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.model import Device, Ints, Kinds, Trace

BLOCK: Final = 1 << 14
# The work that a thread has to do again because the device ran dry while it waited.
_REFILLS: Final = (Cause.DRIVER_CALL, Cause.OP, Cause.AROUND, Cause.PYTHON, Cause.HOLE)
# After the last operation these still explain why nothing follows.
_EXPLAINS: Final = tuple(range(Cause.GC, Cause.OPTIMIZER))


def account(  # noqa: PLR0913, PLR0917  what an account is made of
    trace: Trace,
    device: Device,
    launches: Launches,
    hosts: HostTimelines,
    window: tuple[int, int],
    facts: Facts,
) -> Budget:
    """Divide a window. ``facts`` are of the whole, where the trace is only a part of it."""
    line, until = device_line(device.ops, *window)
    filled, none = until > line.time, line.label == IDLE
    busy, idle = np.flatnonzero(filled & ~none), np.flatnonzero(filled & none)
    works = _segments(line.time[busy], until[busy], line.label[busy], -1)
    gap = line.time[idle], until[idle]
    del line, until
    skew, threads = facts.skew, facts.launchers | {facts.busiest}
    gaps = gaps_of(*gap, device.ops, set_back(launches, skew), facts)
    del gap
    provable = bool(facts.launchers) or device.kind == "cpu"
    parts = [works, _queued(gaps, HOLE_NS * trace.ticks_per_ns)]
    gaps = gaps.take(gaps.returned > gaps.start)
    del works
    parts += (_host_part(x, hosts, threads, skew, provable) for x in _blocks(gaps))
    return Budget(_tiled(parts), skew)


def _segments(start: Ints, end: Ints, cause: Kinds | Ints, thread: int) -> Segments:
    return Segments(start, end, cause.astype(np.int8), np.full(len(start), thread, np.int32))


def _tiled(parts: list[Segments]) -> Segments:
    """Put them in order; of each only the columns are left that are not joined yet."""
    segments = Segments.joined(parts)
    parts.clear()
    segments = segments.take(np.argsort(segments.start, kind="stable"))
    if (segments.start[1:] != segments.end[:-1]).any():
        raise AssertionError("the account of a device has a hole or an overlap")
    return segments


def _queued(gaps: Gaps, long: int) -> Segments:
    """The part of each gap after its launch: submitted, and not begun."""
    gaps = gaps.take(gaps.end > gaps.returned)
    cause = np.where(gaps.returned > gaps.start, Cause.LAUNCH_LATENCY, Cause.QUEUED)
    cause = np.where(gaps.early, Cause.BEFORE_TRACE, cause)
    # So long is no queue: other streams or processes, peers, or work the trace does not have.
    cause = np.where(gaps.end - gaps.returned > long, Cause.LONG_QUEUE, cause)
    return _segments(gaps.returned, gaps.end, cause, -1)


def _blocks(gaps: Gaps) -> Iterator[Gaps]:
    """The gaps of one thread after the other, so many at a time that they stay in the cache."""
    for thread in present(gaps.thread):
        mine = gaps.take(gaps.thread == thread)
        for first in range(0, len(mine), BLOCK):
            yield mine.take(slice(first, first + BLOCK))


def _host_part(
    gaps: Gaps, hosts: HostTimelines, launchers: frozenset[int], skew: int, provable: bool
) -> Segments:
    """The part of each gap before its launch, by what the launching thread did meanwhile."""
    thread = int(gaps.thread[0])
    start, end = gaps.start + skew, gaps.returned + skew
    line = hosts.between(thread, launchers, int(start[0]), int(end[-1]))
    cut, (gap, ended, row) = aligned(start, end, line.time)
    inside = gap > ended
    until = np.append(cut[1:], cut[-1])[inside]
    begin, gap = cut[inside], gap[inside]
    label = np.append(line.label, np.int8(line.none))[row[inside]]
    dry = hosts.own(thread).at(start) == Cause.SYNC
    cause = _named(label, gaps.take(gap), dry[gap], provable)
    return _segments(begin - skew, until - skew, cause, thread)


def _named(label: Kinds, gaps: Gaps, dry: Kinds, provable: bool) -> Kinds:
    """What the host did, in the light of the gap it lies in."""
    if not provable:
        return np.full(len(label), Cause.NO_LAUNCH, np.int8)
    # Only the thread that waited refills; what others show keeps its name.
    cause = np.where(dry & np.isin(label, _REFILLS), np.int8(Cause.REFILL), label % OTHERS)
    return np.where(gaps.tail & ~np.isin(cause, _EXPLAINS), np.int8(Cause.TAIL), cause)

"""Which lines of the user's code own each slice of the budget.

Idle time belongs to the line that the host thread is in for which the device waits; work, and the
wait in the queue, to the line that launched it. Time without any of the user's code on the stack
belongs to no line, so that the places of a slice add up to the slice or to less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.budgets.budget import Budget, Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.launches import Launches, match
from whyidle.monitor.traces.model import EVER, Device, Ints, Ops, Site, Trace
from whyidle.monitor.traces.where.callers import asked_by, following, running
from whyidle.monitor.traces.where.nesting import NONE, Labels, portions
from whyidle.monitor.traces.where.user_code import CodePoint, Source, UserCode

_SLICES: Final = list(Slice)
_SLICE_OF: Final = np.array([_SLICES.index(cause.slice) for cause in Cause])
_QUEUE: Final = _SLICES.index(Slice.IDLE_QUEUE)
_WORK: Final = [i for i, s in enumerate(_SLICES) if not s.idle]
_IS_WORK: Final = np.isin(np.arange(len(_SLICES)), _WORK)
MOST_CALLS: Final = 3
_RECORD: Final = {
    "kineto": ": record it with_stack=True",
    "xplane": ": record it with python_tracer_level=1",
    "nsys": ": Nsight Systems exports none that say when a line ran",
}


@dataclass(frozen=True, slots=True)
class Callee:
    """What a line of the user's code was calling, and for how long."""

    name: str
    ticks: int


@dataclass(frozen=True, slots=True)
class Hotspot:
    """A place in the user's code, and its part of one slice, over all devices.

    ``exact_line``: whether ``site.line`` is the line that was running. It is for call stacks
    and HLO. A profiler's Python frames know the function only: the line is the first one of its
    definition, decorators included. (Kineto gives to a function that was running already when the
    recording began the line it was in then, and to a generator the ``yield`` it went on from.)
    The lines of such a function are distinguished by their ``calls``, most time first.
    """

    slice: Slice
    site: Site
    ticks: int
    share: float  # of the slice
    source: Source
    exact_line: bool
    calls: tuple[Callee, ...] = ()


def hotspots(
    trace: Trace,
    budgets: list[Budget],
    launches: list[Launches] | None = None,
    within: list[tuple[int, int]] | None = None,
) -> list[Hotspot]:
    """Find the user's code that owns each slice, all devices together.

    ``budgets[i]`` and, if they are known already, ``launches[i]`` belong to ``trace.devices[i]``.
    Of a part of a trace ``within[i]`` says when the device has its first and last operation in all
    of it, and no call is left out.
    """
    code = UserCode(trace)
    if not code.points and not trace.sources:
        return []
    launches = launches or [match(trace, device.ops) for device in trace.devices]
    total = np.zeros(len(_SLICES), np.int64)
    parts: list[tuple[Ints, Ints, Ints]] = []
    spans = within or [_span(device.ops) for device in trace.devices]
    for device, launched, budget, span in zip(trace.devices, launches, budgets, spans, strict=True):
        segments = _within(budget.segments, *span)
        np.add.at(total, _SLICE_OF[segments.cause], segments.end - segments.start)
        parts += _owned(trace, device, launched, Budget(segments, budget.skew), code)
    ticks, calls = _added(parts, len(code.points)), None if within else MOST_CALLS
    found = list(_summed(ticks, code.points, total.tolist(), calls))
    return sorted(found, key=lambda p: (-p.ticks, p.slice, p.site.file, p.site.line))


def _span(ops: Ops) -> tuple[int, int]:
    return (int(ops.start[0]), int(ops.end.max())) if len(ops) else (-EVER, EVER)


def _within(segments: Segments, first: int, last: int) -> Segments:
    """What lies between the first operation of a device and the end of its last.

    A budget covers whole steps too, and those begin before the device does; the slices of a
    device, which its places are shares of, do not.
    """
    segments = segments.take((segments.end > first) & (segments.start < last))
    segments.start = np.maximum(segments.start, first)
    segments.end = np.minimum(segments.end, last)
    return segments


def why_none(trace: Trace, *, ours: bool = False) -> str:
    """Say why a trace names no place in the user's code, and how to record one that does."""
    code = UserCode(trace)
    if code.points or any(code.of_site(site) != NONE for site in trace.sources.values()):
        return "no time of a device falls to the user's code that the trace names"
    if code.has_frames or len(trace.stacks) or trace.sources:
        return "the trace names code of frameworks and of Python only, none of the user's"
    # Nobody chooses how our own traces are recorded.
    record = "" if ours else _RECORD.get(trace.format, "")
    return f"the trace has no Python frames and no call sites{record}"


def _owned(
    trace: Trace, device: Device, launches: Launches, budget: Budget, code: UserCode
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield slices, numbers of code points and lengths of all portions of a device's time."""
    segments = budget.segments
    of = _SLICE_OF[segments.cause]
    asked = asked_by(trace, device, launches, code)
    waited = np.where(_IS_WORK[of], NONE, segments.thread)
    for thread in present(waited):
        if thread >= 0:
            mine = waited == thread
            yield _portions(segments.take(mine), of[mine], code.on(thread), budget.skew)
    for work in _WORK:
        mine = of == work
        kind = device.ops.kind
        # Of a program that runs, nobody knows the line; of its operators, XLA.
        rows = np.flatnonzero((_SLICE_OF[kind] == work) & (kind != Cause.EXECUTION))
        yield _portions(segments.take(mine), of[mine], running(device.ops.take(rows), asked[rows]))
    mine = (of == _QUEUE) & (waited < 0)
    yield _portions(segments.take(mine), of[mine], following(device.ops, asked))


def _portions(segments: Segments, of: Ints, line: Labels, skew: int = 0) -> tuple[Ints, Ints, Ints]:
    row, number, length = portions(segments.start + skew, segments.end + skew, line)
    return of[row], number, length


def _added(parts: list[tuple[Ints, Ints, Ints]], points: int) -> dict[tuple[int, int], int]:
    """Add up the ticks of each slice and code point."""
    ticks = np.zeros((len(_SLICES), points), np.int64)
    for slices, numbers, lengths in parts:
        known = numbers != NONE
        np.add.at(ticks, (slices[known], numbers[known]), lengths[known])
    rows, columns = np.nonzero(ticks)
    return {
        (slice_, point): int(ticks[slice_, point])
        for slice_, point in zip(rows.tolist(), columns.tolist(), strict=True)
    }


def _summed(
    ticks: dict[tuple[int, int], int],
    points: list[CodePoint],
    total: list[int],
    most_calls: int | None,
) -> Iterator[Hotspot]:
    """Yield one place a slice and site."""
    calls: dict[tuple[int, Site, Source, bool], list[Callee]] = {}
    for (which, number), length in ticks.items():
        point = points[number]
        key = (which, point.site, point.source, point.exact_line)
        calls.setdefault(key, []).append(Callee(point.call, length))
    for (which, site, source, exact), parts in calls.items():
        length = sum(part.ticks for part in parts)
        yield Hotspot(
            slice=_SLICES[which],
            site=site,
            ticks=length,
            share=length / total[which],
            source=source,
            exact_line=exact,
            calls=most(parts)[:most_calls],
        )


def most(parts: list[Callee]) -> tuple[Callee, ...]:
    """Return the calls that have names, most time first."""
    called = sorted((part for part in parts if part.name), key=lambda c: (-c.ticks, c.name))
    return tuple(called)

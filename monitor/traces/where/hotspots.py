"""Which lines of the user's code own each slice of the budget.

Idle time belongs to the line that the host thread is in for which the device waits; work, and the
wait in the queue, to the line that launched it. Time without any of the user's code on the stack
belongs to no line, so that the places of a slice add up to the slice or to less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.budgets.budget import Accounted, Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.model import Ints, Site, Trace
from whyidle.monitor.traces.where.callers import asked_by, following, running
from whyidle.monitor.traces.where.nesting import NONE, Labels, portions
from whyidle.monitor.traces.where.user_code import Source, UserCode

_SLICES: Final = list(Slice)
_SLICE_OF: Final = np.array([_SLICES.index(cause.slice) for cause in Cause])
_QUEUE: Final = _SLICES.index(Slice.IDLE_QUEUE)
_WORK: Final = [i for i, s in enumerate(_SLICES) if not s.idle]
_IS_WORK: Final = np.isin(np.arange(len(_SLICES)), _WORK)
_MOST_CALLS: Final = 3
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


class Places:
    """The places in the user's code, and the ticks that each owns of a slice, by what it called."""

    def __init__(self) -> None:
        self._ticks: dict[tuple[Slice, Site, Source, bool], Counter[str]] = {}

    def add(self, trace: Trace, devices: Iterable[Accounted]) -> None:
        """Add what the account of these devices of a stretch says."""
        code = UserCode(trace)
        if not code.points and not trace.sources:
            return
        parts: list[tuple[Ints, Ints, Ints]] = []
        for one in devices:
            segments = _within(one.budget.segments, *one.span)
            parts += _owned(trace, one, segments, code)
        ticks = np.zeros((len(_SLICES), len(code.points)), np.int64)
        for slices, numbers, lengths in parts:
            known = numbers != NONE
            np.add.at(ticks, (slices[known], numbers[known]), lengths[known])
        for which, number in np.argwhere(ticks).tolist():
            point = code.points[number]
            place = _SLICES[which], point.site, point.source, point.exact_line
            self._ticks.setdefault(place, Counter())[point.call] += int(ticks[which, number])

    def hotspots(self, devices: Iterable[Mapping[Cause, int]]) -> list[Hotspot]:
        """Return them, most time first; ``devices``: the account of each, by cause."""
        whole: Counter[Slice] = Counter()
        for cause, ticks in chain.from_iterable(sums.items() for sums in devices):
            whole[cause.slice] += ticks
        found = []
        for (slice_, site, source, exact_line), calls in self._ticks.items():
            ticks = calls.total()
            called = sorted((-of_it, name) for name, of_it in calls.items() if name)
            most = tuple(Callee(name, -of_it) for of_it, name in called[:_MOST_CALLS])
            share = ticks / whole[slice_]
            found.append(Hotspot(slice_, site, ticks, share, source, exact_line, most))
        return sorted(found, key=lambda p: (-p.ticks, p.slice, p.site.file, p.site.line))


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
    trace: Trace, one: Accounted, segments: Segments, code: UserCode
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield slices, numbers of code points and lengths of all portions of a device's time."""
    device, of = one.device, _SLICE_OF[segments.cause]
    asked = asked_by(trace, device, one.launches, code)
    waited = np.where(_IS_WORK[of], NONE, segments.thread)
    for thread in present(waited):
        if thread >= 0:
            mine = waited == thread
            yield _portions(segments.take(mine), of[mine], code.on(thread), one.budget.skew)
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

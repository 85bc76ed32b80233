"""A trace too long for memory: the same account, stretch by stretch.

Twice through the file: what the account of any part must know of the whole, such as the steps and
the difference of the clocks; then each stretch as if it were a file, and what it gives is added up.
Edges lie where an operation starts, so that no gap is cut on the device that does most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from whyidle.monitor.traces import steps
from whyidle.monitor.traces.adding import Adding
from whyidle.monitor.traces.budgets.account import account
from whyidle.monitor.traces.budgets.budget import Budget, Segments
from whyidle.monitor.traces.budgets.gaps import Facts, Seen
from whyidle.monitor.traces.budgets.hosts import HostTimelines, most_telling
from whyidle.monitor.traces.budgets.totals import Totals, added, within
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.corrections import correct, gives_gpus_work
from whyidle.monitor.traces.launches import UNKNOWN, Index, Launches, match
from whyidle.monitor.traces.model import Device, Flags, Ints, Marks, Ops, Stretch, Trace
from whyidle.monitor.traces.reports import Analysis, DeviceReport
from whyidle.monitor.traces.steps.markers import calls_made, joined_up, marked
from whyidle.monitor.traces.summaries import Shown

LONG = (
    "The file has {events:,} events: it was read part by part, and a timeline of it shows its"
    " communication only."
)


def analyse_long(
    path: Path, trace: Trace, stretches: Iterable[Stretch], step_ns: int | None
) -> Analysis:
    """Account for every instant of a trace whose rows are read stretch by stretch."""
    whole = _Whole(trace)
    for stretch in _ahead(stretches):
        whole.look(stretch)
    found = steps.agreeing(whole.steps(), step_ns, trace.ticks_per_ns)
    main = most_telling(trace.threads, whole.operators.tolist(), whole.spans.tolist())
    devices = {
        place: _Device(known, Facts.of(known.seen), found)
        for place, known in sorted(whole.devices.items())
        # Where a GPU is given work it is the device, also in stretches without any.
        if known.device.kind != "cpu" or not (whole.is_gpus or trace.gpus_cut_off)
    }
    adding = Adding(trace, found)
    for stretch in _ahead(stretches):
        _account(stretch, devices, main, adding)
    trace.warnings.append(LONG.format(events=trace.events))
    whole.shown.put_into(trace)
    reports = [device.report(place, whole.shown) for place, device in devices.items()]
    trace.devices = [report.device for report in reports]
    return adding.analysis(path, reports)


def _ahead(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """Yield them corrected; the next one is read while one is worked on."""
    each = iter(stretches)

    def following() -> Stretch | None:
        stretch = next(each, None)
        if stretch is not None:
            correct(stretch.trace)
        return stretch

    with ThreadPoolExecutor(1) as other:
        coming = other.submit(following)
        while (stretch := coming.result()) is not None:
            coming = other.submit(following)
            yield stretch


@dataclass(slots=True)
class _Known:
    """One device, as the first look at it shows it."""

    device: Device
    first: int
    last: int
    seen: list[Seen] = field(default_factory=list)


class _Whole:
    """What is known once all stretches were looked at."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        # By their places: several processes may have work on one GPU.
        self.devices: dict[int, _Known] = {}
        self.is_gpus = False
        self.operators = self.spans = self._calls = np.zeros(0, np.int64)
        self.shown = Shown()
        self._marks: list[Marks] = []
        self._repeated: list[steps.TraceSteps] = []

    def look(self, stretch: Stretch) -> None:
        """Add what one stretch shows."""
        part, trace = stretch.trace, self._trace
        if not trace.names:
            _describe(trace, part)
            self.operators = self.spans = self._calls = np.zeros(len(part.threads), np.int64)
        trace.warnings += [said for said in part.warnings if said not in trace.warnings]
        here = inside(part.host.start, stretch)
        count = len(part.threads)
        self.spans = self.spans + np.bincount(part.host.thread[here], minlength=count)
        operators = here & (part.host.kind == Cause.OP)
        self.operators = self.operators + np.bincount(part.host.thread[operators], minlength=count)
        calls = part.calls.take(here[part.calls.row])
        self._calls = self._calls + calls_made(replace(part, calls=calls))
        self._marks.append(part.marks.take(inside(part.marks.start, stretch)))
        if not any(map(len, self._marks)):
            self._repeated.append(_whole_ones(steps.repeated(part), stretch))
        self.is_gpus = self.is_gpus or gives_gpus_work(part)
        index = Index(part)
        for place, device in enumerate(part.devices):
            self._look_at(place, device, match(part, device.ops, index), stretch)
        self.shown.add(stretch)

    def _look_at(self, place: int, device: Device, launched: Launches, stretch: Stretch) -> None:
        here = inside(device.ops.start, stretch)
        ops = device.ops.take(here)
        if not len(ops):
            return
        first, last = int(ops.start[0]), int(ops.end.max())
        known = self.devices.setdefault(place, _Known(device, first, last))
        known.last = max(known.last, last)
        if known.device.pid is None:
            known.device.pid = device.pid
        known.seen.append(Seen.of(ops, launched.take(here), len(stretch.trace.threads)))

    def steps(self) -> steps.TraceSteps:
        """Return the steps: by markers, else by what repeats in each stretch."""
        self._trace.marks = joined_up(Marks.joined(self._marks), self._trace.names)
        if by_marker := marked(self._trace, self._calls):
            return steps.TraceSteps("markers", *by_marker)
        some = [found for found in self._repeated if len(found)]
        if not some:
            return steps.repeated(self._trace)
        start = np.concatenate([found.start for found in some])
        end = np.concatenate([found.end for found in some])
        apart = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
        return replace(some[0], start=start[apart], end=end[apart])


def inside(times: Ints, stretch: Stretch) -> Flags:
    """Mark what belongs to a stretch and to no other."""
    found: Flags = (times >= stretch.start) & (times < stretch.end)
    return found


def _whole_ones(found: steps.TraceSteps, stretch: Stretch) -> steps.TraceSteps:
    """Leave out the steps that another stretch has, and those that it has only a part of."""
    own = inside(found.start, stretch) & (found.end <= stretch.end)
    return replace(found, start=found.start[own], end=found.end[own])


def _describe(trace: Trace, part: Trace) -> None:
    """Take over what does not depend on the rows."""
    trace.names, trace.threads, trace.unknown = part.names, part.threads, part.unknown
    trace.dropped, trace.world, trace.group = part.dropped, part.world, part.group
    trace.rank, trace.machine, trace.origin_ns = part.rank, part.machine, part.origin_ns


class _Device:
    """The account of one device, as far as it has come."""

    def __init__(self, known: _Known, facts: Facts, found: steps.TraceSteps) -> None:
        self._known, self.facts, self._steps = known, facts, found
        self.span = known.first, known.last
        # The host begins a step before its device does; the account covers both.
        self.begin = min([known.first, *found.start[:1].tolist()])
        self.end = max([known.last, *found.end[-1:].tolist()])
        self._totals: list[Totals] = []
        self._whole: dict[Cause, int] = {}
        self._of_steps: dict[Cause, int] = {}
        self._unmatched = 0

    def add(self, ops: Ops, launched: Launches, budget: Budget, stretch: Stretch) -> None:
        """Add a budget that lies within a stretch."""
        known, found = self._known, self._steps
        start, end = max(stretch.start, known.first), min(stretch.end, known.last)
        here = inside(ops.start, stretch)
        if start < end:
            _add(self._whole, budget.sums(np.array([start]), np.array([end])))
            self._totals.append(within(ops, start, end, here))
        low = np.maximum(found.start - budget.skew, max(stretch.start, self.begin))
        high = np.minimum(found.end - budget.skew, min(stretch.end, self.end))
        _add(self._of_steps, budget.sums(low[low < high], high[low < high]))
        self._unmatched += int((launched.how[here] == UNKNOWN).sum())

    def report(self, place: int, shown: Shown) -> DeviceReport:
        """Return the whole account."""
        known = self._known
        return DeviceReport(
            device=shown.of(place, known.device),
            launches=Launches.of(),
            totals=added(self._totals, known.last - known.first),
            budget=Budget(Segments.of(), self.facts.skew),
            unmatched=self._unmatched,
            whole=self._whole,
            of_steps=self._of_steps if len(self._steps) else None,
        )


def _add(sums: dict[Cause, int], more: dict[Cause, int]) -> None:
    for cause, ticks in more.items():
        sums[cause] = sums.get(cause, 0) + ticks


def _account(stretch: Stretch, devices: dict[int, _Device], main: int, adding: Adding) -> None:
    part = stretch.trace
    hosts, index = HostTimelines(part, main), Index(part)
    there, launched, budgets, spans = [], [], [], []
    for place, device in enumerate(part.devices):
        of = devices.get(place)
        if of is None or not len(device.ops):
            continue
        start, end = max(stretch.start, of.begin), min(stretch.end, of.end)
        if start < end:
            found = match(part, device.ops, index)
            budget = account(part, device, found, hosts, (start, end), of.facts)
            of.add(device.ops, found, budget, stretch)
            there.append(device)
            launched.append(found)
            budgets.append(budget)
            spans.append(of.span)
    adding.add(stretch, there, launched, budgets, spans)

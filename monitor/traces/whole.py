"""What the account of any stretch of a trace must know of all of them: found by a first look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whyidle.monitor.traces.accounts import DeviceAccount, Known
from whyidle.monitor.traces.budgets.gaps import Facts, Seen
from whyidle.monitor.traces.budgets.hosts import most_telling
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.corrections import gives_gpus_work
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.model import Marks, Stretch, Trace
from whyidle.monitor.traces.steps import TraceSteps, repeated
from whyidle.monitor.traces.steps.markers import joined_up, marked
from whyidle.monitor.traces.summaries import Shown


class Whole:
    """What is known once all stretches were looked at."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.shown = Shown()
        # By their places: several processes may have work on one GPU.
        self._known: dict[int, Known] = {}
        self._is_gpus = trace.gpus_cut_off
        # By thread.
        self._spans = self._operators = self._calls = np.zeros(1, np.int64)
        self._marks: list[Marks] = []
        self._repeated: list[TraceSteps] = []

    def look(self, stretch: Stretch, launched: list[Launches]) -> None:
        """Add what one stretch shows; ``launched``: the launches of each of its devices."""
        part, threads = stretch.trace, len(stretch.trace.threads)
        host = stretch.own(part.host, part.host.start)
        calls = stretch.own(part.calls, part.host.start[part.calls.row])
        operators, callers = host.thread[host.kind == Cause.OP], part.host.thread[calls.row]
        self._spans = self._spans + np.bincount(host.thread, minlength=threads)
        self._operators = self._operators + np.bincount(operators, minlength=threads)
        self._calls = self._calls + np.bincount(callers, minlength=threads)
        self._marks.append(stretch.own(part.marks, part.marks.start))
        if not any((marks.end > marks.start).any() for marks in self._marks):
            found = repeated(part, launched)
            # Another stretch has some of them, and of some it has the end.
            own = stretch.has(found.start) & (found.end <= stretch.end)
            self._repeated.append(replace(found, start=found.start[own], end=found.end[own]))
        is_gpu = any(device.kind != "cpu" for device in part.devices)
        self._is_gpus = self._is_gpus or is_gpu or gives_gpus_work(part)
        for place, its in enumerate(launched):
            self._look_at(place, its, stretch)
        if self._trace.stretches is not None:
            self._describe(part)
            self.shown.add(stretch)

    def _look_at(self, place: int, launched: Launches, stretch: Stretch) -> None:
        device = stretch.trace.devices[place]
        ops = stretch.own(device.ops, device.ops.start)
        if not len(ops):
            return
        first, last = int(ops.start[0]), int(ops.end.max())
        known = self._known.setdefault(place, Known(place, device, first, last))
        known.last = max(known.last, last)
        if known.device.pid is None:
            known.device.pid = device.pid
        launched = stretch.own(launched, device.ops.start)
        known.seen.append(Seen.of(ops, launched, len(stretch.trace.threads)))

    def _describe(self, part: Trace) -> None:
        """Take over what does not depend on the rows."""
        trace = self._trace
        trace.warnings += [said for said in part.warnings if said not in trace.warnings]
        if not trace.names:
            trace.names, trace.threads, trace.unknown = part.names, part.threads, part.unknown
            trace.dropped, trace.world, trace.group = part.dropped, part.world, part.group
            trace.rank, trace.machine, trace.origin_ns = part.rank, part.machine, part.origin_ns

    def steps(self) -> TraceSteps:
        """Return the steps: by markers, else by what repeats in each stretch."""
        trace, marks = self._trace, Marks.joined(self._marks)
        # The profiler of PyTorch joins them up itself.
        trace.marks = joined_up(marks, trace.names) if trace.format == "nsys" else marks
        if by_marker := marked(trace, self._calls):
            return TraceSteps("markers", *by_marker)
        best = next((found for found in self._repeated if len(found)), self._repeated[0])
        start = np.concatenate([found.start for found in self._repeated])
        end = np.concatenate([found.end for found in self._repeated])
        apart = start >= np.append(start[:1], np.maximum.accumulate(end)[:-1])
        return replace(best, start=start[apart], end=end[apart])

    def accounts(self, found: TraceSteps) -> list[DeviceAccount]:
        """Return an account of each device that is still to be added up; ``found``: the steps."""
        spans, operators = self._spans.tolist(), self._operators.tolist()
        main = most_telling(self._trace.threads, operators, spans)
        return [
            DeviceAccount(known, Facts.of(known.seen, main), found)
            for _, known in sorted(self._known.items())
            # Where a GPU is given work it is the device, also in stretches without any.
            if known.device.kind != "cpu" or not self._is_gpus
        ]

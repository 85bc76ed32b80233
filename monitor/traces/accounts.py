"""The account of a device, stretch by stretch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from whyidle.monitor.traces.budgets.account import account
from whyidle.monitor.traces.budgets.budget import Accounted, Budget, Segments
from whyidle.monitor.traces.budgets.gaps import Facts, Seen
from whyidle.monitor.traces.budgets.hosts import HostTimelines
from whyidle.monitor.traces.budgets.totals import Totals, added, totals
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.launches import UNKNOWN, Launches
from whyidle.monitor.traces.model import Device, Stretch
from whyidle.monitor.traces.reports import DeviceReport
from whyidle.monitor.traces.steps import TraceSteps


@dataclass(slots=True)
class Known:
    """One device, as the first look at it shows it."""

    place: int  # among those of the trace
    device: Device
    first: int
    last: int
    seen: list[Seen] = field(default_factory=list)


class DeviceAccount:
    """The account of one device, as far as it has come."""

    def __init__(self, known: Known, facts: Facts, found: TraceSteps) -> None:
        self.place, self.device = known.place, known.device
        self.facts, self._steps = facts, found
        self._first, self._last = known.first, known.last
        # The host begins a step before its device does; the account covers both.
        self._begin = min([known.first, *found.start[:1].tolist()])
        self._end = max([known.last, *found.end[-1:].tolist()])
        self._launches, self._budget = Launches.of(), Budget(Segments.of(), facts.skew)
        self._totals: list[Totals] = []
        self._whole: Counter[Cause] = Counter()
        self._of_steps: Counter[Cause] = Counter()
        self._unmatched = 0

    def add(
        self, stretch: Stretch, launched: list[Launches], hosts: HostTimelines
    ) -> Accounted | None:
        """Add its account of a stretch, and return it; None where it has no operation there."""
        devices, found = stretch.trace.devices, self._steps
        if self.place >= len(devices) or not len(devices[self.place].ops):
            return None
        device, launches = devices[self.place], launched[self.place]
        start, end = max(stretch.start, self._begin), min(stretch.end, self._end)
        budget = Budget(Segments.of(), self.facts.skew)
        if start < end:
            budget = account(stretch.trace, device, launches, hosts, (start, end), self.facts)
        low = np.maximum(found.start - budget.skew, start)
        high = np.minimum(found.end - budget.skew, end)
        self._of_steps.update(budget.sums(low[low < high], high[low < high]))
        start, end = max(stretch.start, self._first), min(stretch.end, self._last)
        if start <= end:
            self._whole.update(budget.sums(np.array([start]), np.array([end])))
            self._totals.append(totals(device.ops, start, end, stretch.has(device.ops.start)))
        own = stretch.own(launches, device.ops.start)
        self._unmatched += int((own.how == UNKNOWN).sum())
        if stretch.is_all:
            self._launches, self._budget = launches, budget
        return Accounted(device, launches, budget, (self._first, self._last))

    def report(self) -> DeviceReport:
        """Return the whole account."""
        return DeviceReport(
            device=self.device,
            launches=self._launches,
            totals=added(self._totals, self._last - self._first),
            budget=self._budget,
            unmatched=self._unmatched,
            whole=dict(self._whole),
            of_steps=dict(self._of_steps) if len(self._steps) else None,
        )

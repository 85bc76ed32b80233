"""What the stretches of a long trace ran and called, added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import numpy as np

from whyidle.monitor.traces.budgets.budget import Budget
from whyidle.monitor.traces.calls import CallSums, call_sums, listed, most_called
from whyidle.monitor.traces.kernels.collectives import collectives
from whyidle.monitor.traces.kernels.copies import Copies
from whyidle.monitor.traces.kernels.launching import figures
from whyidle.monitor.traces.kernels.summary import Kernel, Kernels, summarise
from whyidle.monitor.traces.kernels.tallies import Named
from whyidle.monitor.traces.launches import GraphLaunches, Launches, graph_launches
from whyidle.monitor.traces.model import Device, Stretch, Trace
from whyidle.monitor.traces.reports import Analysis, DeviceReport
from whyidle.monitor.traces.steps import TraceSteps
from whyidle.monitor.traces.where.hotspots import MOST_CALLS, Callee, Hotspot, hotspots, most

_One = TypeVar("_One")


class Adding:
    """Everything of an answer but the accounts of the devices."""

    def __init__(self, trace: Trace, steps: TraceSteps) -> None:
        self._trace, self._steps = trace, steps
        self._kernels: list[Kernels] = []
        self._calls: CallSums | None = None
        self._spots: dict[tuple[object, ...], Hotspot] = {}
        self._graphs: list[GraphLaunches] = []

    def add(
        self,
        stretch: Stretch,
        devices: list[Device],
        launched: list[Launches],
        budgets: list[Budget],
        spans: list[tuple[int, int]],
    ) -> None:
        """Add what one stretch has."""
        part = replace(stretch.trace, devices=devices)
        for spot in hotspots(part, budgets, launched, spans):
            self._add_spot(spot)
        host = part.host.take((part.host.start >= stretch.start) & (part.host.start < stretch.end))
        of_calls = part.host.start[part.calls.row]
        calls = part.calls.take((of_calls >= stretch.start) & (of_calls < stretch.end))
        self._graphs.append(graph_launches(replace(part, calls=calls), launched))
        sums = call_sums(replace(part, host=host), self._steps)
        self._calls = sums if self._calls is None else _plus(self._calls, sums)
        own, own_launched = [], []
        for device, launches in zip(devices, launched, strict=True):
            starts = device.ops.start
            here = (starts >= stretch.start) & (starts < stretch.end)
            own.append(replace(device, ops=device.ops.take(here)))
            own_launched.append(launches.take(here))
        alone = replace(part, host=host, devices=own)
        self._kernels.append(summarise(alone, own_launched, self._steps))

    def _add_spot(self, spot: Hotspot) -> None:
        key = spot.slice, spot.site, spot.source, spot.exact_line
        same = self._spots.get(key)
        if same is not None:
            calls = _sums((*same.calls, *spot.calls), lambda call: call.name, lambda c: c.ticks)
            spot = replace(
                spot,
                ticks=same.ticks + spot.ticks,
                calls=tuple(Callee(name, ticks) for name, ticks in calls.items()),
            )
        self._spots[key] = spot

    def analysis(self, path: Path, reports: list[DeviceReport]) -> Analysis:
        """Return all of it."""
        trace, found = self._trace, self._steps
        calls = self._calls
        return Analysis(
            trace=trace,
            steps=found,
            devices=reports,
            path=path,
            kernels=kernels(self._kernels, len(found)),
            hotspots=self._hotspots(reports),
            calls=[] if calls is None else listed(calls, most_called(calls, trace), trace, found),
            graphs=GraphLaunches(
                sum(one.count for one in self._graphs), sum(one.shown for one in self._graphs)
            ),
        )

    def _hotspots(self, reports: Iterable[DeviceReport]) -> list[Hotspot]:
        total: dict[object, int] = {}
        for report in reports:
            for cause, ticks in report.whole.items():
                total[cause.slice] = total.get(cause.slice, 0) + ticks
        found = [
            replace(
                spot, share=spot.ticks / total[spot.slice], calls=most([*spot.calls])[:MOST_CALLS]
            )
            for spot in self._spots.values()
        ]
        return sorted(found, key=lambda p: (-p.ticks, p.slice, p.site.file, p.site.line))


def _plus(one: CallSums, other: CallSums) -> CallSums:
    """Add up two tables; the second may have more names."""
    more = len(other) - len(one)
    columns = {
        name: np.pad(getattr(one, name), (0, max(0, more)))
        + np.pad(getattr(other, name), (0, max(0, -more)))
        for name in CallSums.columns()
    }
    return CallSums(**columns)


def kernels(parts: Sequence[Kernels], steps: int) -> Kernels:
    """Add up what ran."""
    total = sum(part.total for part in parts)
    ran = _added_kernels([kernel for part in parts for kernel in part.kernels], total)
    each = parts[0].ticks_per_ns if parts else 1
    return Kernels(
        ticks_per_ns=each,
        count=sum(part.count for part in parts),
        total=total,
        short_count=sum(part.short_count for part in parts),
        short_total=sum(part.short_total for part in parts),
        kernels=ran,
        collectives=collectives(kernel.runs for kernel in ran if kernel.communicates),
        copies=_copies([one for part in parts for one in part.copies]),
        launching=figures([part.launching.samples for part in parts], each, steps),
        hlo_modules=[],
        hlo_ops=[],
        operators=_named([one for part in parts for one in part.operators]),
    )


def _added_kernels(found: list[Kernel], total: int) -> list[Kernel]:
    by_name = {kernel.runs.name: kernel for kernel in found}
    runs = _named([kernel.runs for kernel in found], total)
    return [replace(by_name[one.name], runs=one) for one in runs]


def _named(found: list[Named], whole: int | None = None) -> list[Named]:
    """Add up what has one name, the longest total first."""
    counts = _sums(found, lambda one: one.name, lambda one: one.count)
    totals = _sums(found, lambda one: one.name, lambda one: one.total)
    whole = sum(totals.values()) if whole is None else whole
    rows = [
        Named(name, counts[name], ticks, ticks / whole if whole else 0.0)
        for name, ticks in totals.items()
    ]
    return sorted(rows, key=lambda one: -one.total)


def _copies(found: list[Copies]) -> list[Copies]:
    def key(one: Copies) -> tuple[str, str]:
        return one.direction, one.memory

    rows = []
    for _, same in groupby(sorted(found, key=key), key):
        alike = list(same)
        sizes = [one.bytes for one in alike]
        known = [size for size in sizes if size is not None]
        rows.append(
            replace(
                alike[0],
                count=sum(one.count for one in alike),
                total=sum(one.total for one in alike),
                bytes=sum(known) if len(known) == len(sizes) else None,
                silent=sum(one.silent for one in alike),
            )
        )
    return sorted(rows, key=lambda one: -one.total)


def _sums(
    found: Iterable[_One], name: Callable[[_One], str], value: Callable[[_One], int]
) -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in found:
        sums[name(one)] = sums.get(name(one), 0) + value(one)
    return sums

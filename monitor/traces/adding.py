"""What the stretches of a trace ran and called, added up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import numpy as np

from whyidle.monitor.traces.calls import CallSums, CallTotal, call_sums, most_called
from whyidle.monitor.traces.kernels.collectives import collectives
from whyidle.monitor.traces.kernels.copies import Copies
from whyidle.monitor.traces.kernels.launching import figures
from whyidle.monitor.traces.kernels.summary import Kernel, Kernels, summarise
from whyidle.monitor.traces.kernels.tallies import Named
from whyidle.monitor.traces.launches import GraphLaunches, Launches, graph_launches
from whyidle.monitor.traces.model import Stretch, Trace
from whyidle.monitor.traces.steps import TraceSteps

_One = TypeVar("_One")


class Adding:
    """What ran and was called, as far as it has come; it needs no account of the devices."""

    def __init__(self, trace: Trace, steps: TraceSteps, places: Collection[int]) -> None:
        self._trace, self._steps, self._places = trace, steps, places
        self._kernels: list[Kernels] = []
        self._calls = CallSums.of()
        self.graphs = GraphLaunches(0, 0)

    def add(self, stretch: Stretch, launched: list[Launches]) -> None:
        """Add what one stretch has; ``launched``: the launches of each of its devices."""
        part, devices, of_all, own = stretch.trace, [], [], []
        for place, (device, launches) in enumerate(zip(part.devices, launched, strict=True)):
            if place in self._places:
                of_all.append(launches)
                own.append(stretch.own(launches, device.ops.start))
                devices.append(replace(device, ops=stretch.own(device.ops, device.ops.start)))
        alone = replace(part, host=stretch.own(part.host, part.host.start), devices=devices)
        self._kernels.append(summarise(alone, own, self._steps))
        self._calls = _plus(self._calls, call_sums(alone, self._steps))
        calls = stretch.own(part.calls, part.host.start[part.calls.row])
        graphs = graph_launches(replace(part, calls=calls), of_all)
        self.graphs = GraphLaunches(
            self.graphs.count + graphs.count, self.graphs.shown + graphs.shown
        )

    def kernels(self) -> Kernels:
        """Return what ran."""
        return _added(self._kernels, len(self._steps))

    def calls(self) -> list[CallTotal]:
        """Return what was called most."""
        return most_called(self._calls, self._trace, self._steps)


def _plus(one: CallSums, other: CallSums) -> CallSums:
    """Add up two tables; the second may have more names."""
    more = len(other) - len(one)
    columns = {
        name: np.pad(getattr(one, name), (0, max(0, more)))
        + np.pad(getattr(other, name), (0, max(0, -more)))
        for name in CallSums.columns()
    }
    return CallSums(**columns)


def _added(parts: Sequence[Kernels], steps: int) -> Kernels:
    """Add up what ran."""
    if len(parts) == 1:
        return parts[0]
    total = sum(part.total for part in parts)
    ran = _added_kernels([kernel for part in parts for kernel in part.kernels], total)
    each = parts[0].ticks_per_ns
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

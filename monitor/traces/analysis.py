"""Everything there is to say of a trace, computed once; answer and screens derive from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whyidle.monitor.traces import launches, steps
from whyidle.monitor.traces.budgets.account import account
from whyidle.monitor.traces.budgets.budget import Budget
from whyidle.monitor.traces.budgets.hosts import Hosts
from whyidle.monitor.traces.budgets.totals import Totals, totals
from whyidle.monitor.traces.kernels.summary import Kernels, summarise
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.loading import load
from whyidle.monitor.traces.model import Device, Ints, Ops, Trace
from whyidle.monitor.traces.opening import Progress
from whyidle.monitor.traces.where.places import Place, places


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device: its figures, and where its time went."""

    device: Device
    launches: Launches
    totals: Totals
    budget: Budget
    span: tuple[int, int]  # first operation, end of the last: ticks


@dataclass(frozen=True, slots=True)
class Analysis:
    """One trace file, understood."""

    path: Path
    trace: Trace
    devices: list[DeviceReport]
    steps: steps.Steps
    kernels: Kernels
    places: list[Place]


def analyse(path: Path, progress: Progress | None = None) -> Analysis:
    """Read and understand a trace file."""
    return understand(path, load(path, progress))


def understand(path: Path, trace: Trace) -> Analysis:
    """Account for every instant of a trace."""
    found = steps.find(trace)
    hosts = Hosts(trace)
    devices = [_report(trace, device, hosts, found) for device in trace.devices]
    return Analysis(
        path=path,
        trace=trace,
        devices=devices,
        steps=found,
        kernels=summarise(trace, [d.launches for d in devices], found),
        places=places(trace, [d.budget for d in devices], [d.launches for d in devices]),
    )


def _report(trace: Trace, device: Device, hosts: Hosts, found: steps.Steps) -> DeviceReport:
    launched = launches.match(trace, device.ops)
    first, last = span(device.ops)
    # The host begins a step before its device does; the account covers both.
    window = min([first, *found.start[:1].tolist()]), max([last, *found.end[-1:].tolist()])
    return DeviceReport(
        device=device,
        launches=launched,
        totals=totals(device.ops),
        budget=account(trace, device, launched, hosts, window),
        span=(first, last),
    )


def span(ops: Ops) -> tuple[int, int]:
    """The first start and the last end of a device's operations."""
    return int(ops.start[0]), int(ops.end.max())


def bounds(report: DeviceReport) -> tuple[Ints, Ints]:
    """The device's span, as the one part of the window that its budget sums over."""
    first, last = report.span
    return np.array([first]), np.array([last])

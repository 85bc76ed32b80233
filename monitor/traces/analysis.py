"""A trace, analysed once; answer and screens derive from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from whyidle.monitor.traces import launches, steps
from whyidle.monitor.traces.budgets.account import account
from whyidle.monitor.traces.budgets.budget import Budget
from whyidle.monitor.traces.budgets.hosts import HostTimelines
from whyidle.monitor.traces.budgets.totals import Totals, totals
from whyidle.monitor.traces.calls import CallTotal, calls
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.kernels.summary import Kernels, summarise
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.loading import load
from whyidle.monitor.traces.model import Device, Trace
from whyidle.monitor.traces.opening import Progress
from whyidle.monitor.traces.where.hotspots import Hotspot, hotspots

# Sorting and counting of large columns does without Python's lock; more threads gain little.
WORKERS: Final = 2


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device: its figures, and where its time went. Times are ticks."""

    device: Device
    launches: Launches
    totals: Totals
    budget: Budget
    whole: dict[Cause, int]  # from its first operation to the end of its last
    of_steps: dict[Cause, int] | None  # within the whole steps


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the time of a trace went."""

    trace: Trace
    steps: steps.TraceSteps
    devices: list[DeviceReport]


@dataclass(frozen=True, slots=True)
class Analysis(Breakdown):
    """One trace file, understood: also what ran, and whose lines of code it was."""

    path: Path
    kernels: Kernels
    hotspots: list[Hotspot]
    calls: list[CallTotal]
    graphs: launches.GraphLaunches


def analyse(path: Path, progress: Progress | None = None, step_ns: int | None = None) -> Analysis:
    """Read and understand a trace file; ``step_ns``: how long a step takes, by the job's count."""
    return analyse_trace(path, load(path, progress), step_ns)


def analyse_trace(path: Path, trace: Trace, step_ns: int | None = None) -> Analysis:
    """Account for every instant of a trace, and find what ran and which code asked for it."""
    found = breakdown(trace, step_ns)
    launched = [report.launches for report in found.devices]
    budgets = [report.budget for report in found.devices]
    with ThreadPoolExecutor(WORKERS) as pool:
        ran = pool.submit(summarise, trace, launched, found.steps)
        spots = hotspots(trace, budgets, launched)
        called = calls(trace, found.steps)
    return Analysis(
        trace=trace,
        steps=found.steps,
        devices=found.devices,
        path=path,
        kernels=ran.result(),
        hotspots=spots,
        calls=called,
        graphs=launches.graph_launches(trace, launched),
    )


def breakdown(trace: Trace, step_ns: int | None = None) -> Breakdown:
    """Account for every instant of each device."""
    found = steps.agreeing(steps.as_run(trace, steps.find(trace)), step_ns, trace.ticks_per_ns)
    hosts, index = HostTimelines(trace), launches.Index(trace)
    with ThreadPoolExecutor(WORKERS) as pool:
        matched = pool.map(lambda d: launches.match(trace, d.ops, index), trace.devices)
        reports = pool.map(
            lambda device, launched: _report(trace, device, launched, hosts, found),
            trace.devices,
            matched,
        )
        return Breakdown(trace, found, list(reports))


def _report(
    trace: Trace, device: Device, launched: Launches, hosts: HostTimelines, found: steps.TraceSteps
) -> DeviceReport:
    first, last = int(device.ops.start[0]), int(device.ops.end.max())
    # The host begins a step before its device does; the account covers both.
    window = min([first, *found.start[:1].tolist()]), max([last, *found.end[-1:].tolist()])
    budget = account(trace, device, launched, hosts, window)
    return DeviceReport(
        device=device,
        launches=launched,
        totals=totals(device.ops),
        budget=budget,
        whole=budget.sums(np.array([first]), np.array([last])),
        of_steps=_of_steps(budget, found),
    )


def _of_steps(budget: Budget, found: steps.TraceSteps) -> dict[Cause, int] | None:
    """Steps are on the host's clock, the budget on the device's."""
    if not len(found.start):
        return None
    return budget.sums(found.start - budget.skew, found.end - budget.skew)

"""A trace, analysed once; answer and screens derive from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from whyidle.monitor.traces import launches, steps
from whyidle.monitor.traces.budgets.account import account
from whyidle.monitor.traces.budgets.budget import Budget
from whyidle.monitor.traces.budgets.hosts import HostTimelines, threads_of
from whyidle.monitor.traces.budgets.totals import totals
from whyidle.monitor.traces.calls import calls
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.kernels.summary import summarise
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.loading import load
from whyidle.monitor.traces.model import Device, Trace
from whyidle.monitor.traces.opening import Progress
from whyidle.monitor.traces.reports import Analysis, Breakdown, DeviceReport
from whyidle.monitor.traces.stretched import analyse_long
from whyidle.monitor.traces.where.hotspots import hotspots

__all__ = ["Analysis", "Breakdown", "DeviceReport", "analyse", "analyse_trace", "breakdown"]

# Sorting and counting of large columns does without Python's lock; more threads gain little.
WORKERS: Final = 2


def analyse(path: Path, progress: Progress | None = None, step_ns: int | None = None) -> Analysis:
    """Read and understand a trace file; ``step_ns``: how long a step takes, by the job's count."""
    return analyse_trace(path, load(path, progress), step_ns)


def analyse_trace(path: Path, trace: Trace, step_ns: int | None = None) -> Analysis:
    """Account for every instant of a trace, and find what ran and which code asked for it."""
    if trace.stretches is not None:
        return analyse_long(path, trace, trace.stretches, step_ns)
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
    with ThreadPoolExecutor(WORKERS) as pool:
        coming = pool.submit(HostTimelines, trace)
        index = launches.Index(trace)
        matched = list(pool.map(lambda d: launches.match(trace, d.ops, index), trace.devices))
        hosts = coming.result()
        # While the steps are looked for, the lines of the threads that launch are made.
        for thread in {*chain(*(threads_of(one.thread) for one in matched))}:
            pool.submit(hosts.own, thread)
        repeated = steps.as_run(trace, steps.find(trace, matched))
        found = steps.agreeing(repeated, step_ns, trace.ticks_per_ns)
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
        unmatched=int((launched.how == launches.UNKNOWN).sum()),
        whole=budget.sums(np.array([first]), np.array([last])),
        of_steps=_of_steps(budget, found),
    )


def _of_steps(budget: Budget, found: steps.TraceSteps) -> dict[Cause, int] | None:
    """Steps are on the host's clock, the budget on the device's."""
    if not len(found.start):
        return None
    return budget.sums(found.start - budget.skew, found.end - budget.skew)

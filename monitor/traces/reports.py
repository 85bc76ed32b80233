"""What is known of a trace once it was analysed; answer and screens derive from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whyidle.monitor.traces import steps
from whyidle.monitor.traces.budgets.budget import Budget
from whyidle.monitor.traces.budgets.totals import Totals
from whyidle.monitor.traces.calls import CallTotal
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.kernels.summary import Kernels
from whyidle.monitor.traces.launches import GraphLaunches, Launches
from whyidle.monitor.traces.model import Device, Trace
from whyidle.monitor.traces.where.hotspots import Hotspot


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device: its figures, and where its time went. Times are ticks."""

    device: Device
    launches: Launches
    totals: Totals
    budget: Budget
    unmatched: int  # operations whose launch is not in the file
    whole: dict[Cause, int]  # from its first operation to the end of its last
    of_steps: dict[Cause, int] | None  # within the whole steps


@dataclass(frozen=True, slots=True)
class Analysis:
    """One trace file, understood: where its time went, what ran, and whose lines of code it was."""

    path: Path
    trace: Trace
    steps: steps.TraceSteps
    devices: list[DeviceReport]
    kernels: Kernels
    hotspots: list[Hotspot]
    calls: list[CallTotal]
    graphs: GraphLaunches

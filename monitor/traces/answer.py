"""The JSON answer of ``monitor trace``; the screens are drawn from it, so the two never differ."""

from __future__ import annotations

from whyidle.monitor.core.contracts.trace import (
    BudgetJson,
    DeviceJson,
    OwnerJson,
    TraceJson,
    Unknown,
)
from whyidle.monitor.traces.activity import activity
from whyidle.monitor.traces.analysis import Analysis, DeviceReport
from whyidle.monitor.traces.budgets.budget import by_slice, rounded, to_ns
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Device, Trace
from whyidle.monitor.traces.opening import show
from whyidle.monitor.traces.warnings import trace_warnings
from whyidle.monitor.traces.where.hotspots import Hotspot, why_none
from whyidle.monitor.traces.window import TraceWindow, window_warnings

SCHEMA = 1


def contract(
    analysis: Analysis, *, ours: bool = False, window: TraceWindow | None = None
) -> TraceJson:
    """Return the whole answer; ``ours``: we took the trace ourselves.

    Then ``window`` says how long was recorded, unless the way it was taken does not.
    """
    trace, steps = analysis.trace, analysis.steps
    devices = [_device(analysis, report) for report in analysis.devices]
    median = None if steps.median is None else to_ns(steps.median, trace.ticks_per_ns)
    repeats = None if steps.repeats is None else to_ns(steps.repeats, trace.ticks_per_ns)
    budget = total([device["budget"] for device in devices], len(steps.start))
    spans = [device["budget"]["total_ns"] for device in devices]
    covers = None if window is None else window.to_json(spans)
    said = [] if covers is None else window_warnings(covers, budget["total_ns"])
    return {
        "schema": SCHEMA,
        "file": show(analysis.path),
        "format": trace.format,
        "events": trace.events,
        "window": covers,
        "warnings": [*said, *trace.warnings, *trace_warnings(analysis, ours=ours)],
        "devices": devices,
        "steps": {
            "count": len(steps.start),
            "median_ns": median,
            "source": steps.source,
            "how": steps.how,
            "repeats_ns": repeats,
            "unknown": {"median_ns": steps.how} if median is None else {},
        },
        "budget": budget,
        "step_budget": _step_sum(devices, len(steps.start)),
        **activity(analysis.kernels),
        "calls": [
            {
                "name": call.name,
                "count": call.count,
                "total_ns": to_ns(call.total, trace.ticks_per_ns),
                "per_step": call.per_step,
                "unknown": {"per_step": steps.how} if call.per_step is None else {},
            }
            for call in analysis.calls
        ],
        "where": [_place(hotspot, trace.ticks_per_ns) for hotspot in analysis.hotspots],
        "missing": {
            "graph_launches": analysis.graphs.count,
            "graph_launches_shown": analysis.graphs.shown,
            "dropped": trace.dropped,
        },
        "gpu_metrics": [
            {"gpu": one.gpu, "name": one.name, "mean": one.mean, "samples": one.samples}
            for one in trace.gpu_metrics
        ],
        "ranks": None,
        "unknown": _unknown(analysis, ours=ours),
    }


def _unknown(analysis: Analysis, *, ours: bool) -> Unknown:
    """Why a part of the answer is null or empty."""
    ran, reasons = analysis.kernels, {}
    if not len(analysis.steps.start):
        reasons["step_budget"] = analysis.steps.how
    if not ran.count:
        reasons["kernels"] = "no kernel of a GPU or TPU is in the file"
    if not ran.launching.operations:
        reasons["launching"] = "no operation of a GPU or TPU is in it"
    if not analysis.hotspots:
        reasons["where"] = why_none(analysis.trace, ours=ours)
    return reasons


def _place(hotspot: Hotspot, ticks_per_ns: int) -> OwnerJson:
    return {
        "slice": hotspot.slice,
        "file": hotspot.site.file,
        "line": hotspot.site.line,
        "function": hotspot.site.function,
        "ns": to_ns(hotspot.ticks, ticks_per_ns),
        "share": hotspot.share,
        "source": hotspot.source,
        "exact_line": hotspot.exact_line,
        "calls": [
            {"name": call.name, "ns": to_ns(call.ticks, ticks_per_ns)} for call in hotspot.calls
        ],
    }


def _device(analysis: Analysis, report: DeviceReport) -> DeviceJson:
    trace, device, count = analysis.trace, report.device, len(analysis.steps.start)
    totals = report.totals

    def ns(ticks: int) -> int:
        return to_ns(ticks, trace.ticks_per_ns)

    return {
        "host": device.host,
        "pid": device.pid,
        "rank": device.rank,
        "model": device.model,
        "index": device.index,
        "kind": device.kind,
        "unknown": _not_said(trace, device),
        "span_ns": ns(totals.span),
        "busy_ns": ns(totals.busy),
        "idle_ns": ns(totals.idle),
        "compute_ns": ns(totals.compute),
        "comm_ns": ns(totals.comm),
        "exposed_comm_ns": ns(totals.exposed_comm),
        "copy_ns": ns(totals.copy),
        "exposed_copy_ns": ns(totals.exposed_copy),
        "kernels": totals.kernels,
        "comm_kernels": totals.comm_kernels,
        "copies": totals.copies,
        "budget": _budget(report.whole, trace, count),
        "step_budget": (
            None if report.of_steps is None else _budget(report.of_steps, trace, count)
        ),
    }


def _not_said(trace: Trace, device: Device) -> Unknown:
    known = {"host": device.host, "pid": device.pid, "rank": device.rank, "model": device.model}
    return {
        name: trace.unknown.get(name, "the file does not say")
        for name, value in known.items()
        if value is None
    }


def _budget(sums: dict[Cause, int], trace: Trace, steps: int) -> BudgetJson:
    ns = rounded(sums, trace.ticks_per_ns)
    slices, details = by_slice(ns)
    return {
        "total_ns": sum(ns.values()),
        "steps": steps,
        "slices": slices,
        "details": details,
    }


def _step_sum(devices: list[DeviceJson], steps: int) -> BudgetJson | None:
    if not steps:
        return None
    return total([budget for device in devices if (budget := device["step_budget"])], steps)


def total(budgets: list[BudgetJson], steps: int) -> BudgetJson:
    """Add up budgets of several devices; without any, all slices are there and zero."""
    slices, details = by_slice({})
    for budget in budgets:
        for name, ns in budget["slices"].items():
            slices[name] += ns
        for name, parts in budget["details"].items():
            of_slice = details.setdefault(name, {})
            for label, ns in parts.items():
                of_slice[label] = of_slice.get(label, 0) + ns
    return {
        "total_ns": sum(slices.values()),
        "steps": steps,
        "slices": slices,
        "details": details,
    }

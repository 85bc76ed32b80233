"""What makes the account of a trace less certain than it looks, told in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from whyidle.monitor.slices import Slice
from whyidle.monitor.traces.analysis import Analysis, DeviceReport, bounds
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.launches import UNKNOWN

# Shares of a device's time, or of its operations, from which a reader must be told.
FEW_LAUNCHES: Final = 0.5
MUCH_IDLE: Final = 0.1
MOSTLY: Final = 0.5
PROFILER_COSTS: Final = 0.05
MORE: Final = {
    "kineto": "Record CPU activity too, and with_stack=True for the lines of code.",
    "xplane": "Record with host_tracer_level=2, and python_tracer_level=1 for the lines of code.",
    "nsys": "Record with --trace=cuda,osrt,nvtx.",
}


def doubts(analysis: Analysis) -> list[str]:
    """Return what a careful reader would ask, most important first; once for all devices."""
    if not analysis.devices:
        return [_no_work(analysis)]
    found = [line for report in analysis.devices for line in _of_device(analysis, report)]
    return list(dict.fromkeys(found))


def _no_work(analysis: Analysis) -> str:
    if not analysis.trace.events:
        return "The file holds no events at all."
    return (
        "The file holds no work of any device: no kernels, no copies, and no operators of a"
        f" framework. {MORE[analysis.trace.format]}"
    )


def _of_device(analysis: Analysis, report: DeviceReport) -> Iterator[str]:
    trace, time = analysis.trace, report.budget.sums(*bounds(report))
    total = max(report.totals.span, 1)
    unknown = sum(t for cause, t in time.items() if cause.slice is Slice.IDLE_UNKNOWN)
    allocating = sum(t for cause, t in time.items() if cause.slice is Slice.IDLE_ALLOC)
    if not len(trace.host):
        yield f"The file says nothing of the host: idle time has no cause. {MORE[trace.format]}"
        return
    if len(trace.calls) and np.mean(report.launches.how == UNKNOWN) > FEW_LAUNCHES:
        yield (
            "Most operations have no launch in the file: it is sampled or cut, and what it says"
            " of the causes is implausible."
        )
    if report.totals.idle > MUCH_IDLE * total and unknown > MOSTLY * report.totals.idle:
        yield (
            f"The host recorded nothing that explains {unknown / report.totals.idle:.0%} of the"
            f" idle time. {MORE[trace.format]}"
        )
    if time.get(Cause.LONG_QUEUE, 0) > MUCH_IDLE * total:
        yield (
            f"For {time[Cause.LONG_QUEUE] / total:.0%} of the time work was launched long ago and"
            " did not start: the file may be sampled, or it lacks another process or stream."
        )
    if analysis.steps.source == "none" and allocating > MOSTLY * total:
        yield "Most of the time goes to device memory: this looks like the start of a job."
    if time.get(Cause.PROFILER, 0) > PROFILER_COSTS * total:
        yield f"The profiler itself took {time[Cause.PROFILER] / total:.0%} of the time."
    if report.budget.skew:
        late = report.budget.skew / trace.ticks_per_ns / 1000
        yield f"Kernels start before their launches: the host's clock was set back {late:.1f} us."

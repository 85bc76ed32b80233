"""Steps of a host that ran ahead: what it dispatched at once, the device ran later."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.steps.finding import Steps

# Where so much of the work starts after the last step of the host, its steps are no steps.
LATE: Final = 0.5
# Steps that do the same have the same number of operations, but for the first and the last.
UNEVEN: Final = 0.02


def as_run(trace: Trace, found: Steps) -> Steps:
    """Cut the steps by the device's work where the host's do not hold it."""
    if len(found.start) < 2 or not trace.devices:
        return found
    ops = max((device.ops for device in trace.devices), key=len)
    count, work = len(found.start), len(ops)
    each = round(work / count)
    if np.mean(ops.start > found.end[-1]) < LATE or abs(each * count - work) > UNEVEN * work:
        return found
    start = ops.start[np.minimum(np.arange(count) * each, work - 1)]
    end = np.append(start[1:], ops.end.max())
    if each == 0 or (end <= start).any():
        return found
    return replace(found, start=start, end=end, how=f"{found.how}, as the device ran them")

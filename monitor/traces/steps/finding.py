"""The steps of a job: from its markers, else from what repeats.

What repeats is looked for where it was found to be reliable, in this order: fetches of a data
loader, kernels in the order of their launches, optimizer steps, calls of the framework. A JAX
job is one compiled call a step, so there the calls come first (right in 12 of 12 traces).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.model import Flags, Ints, Trace
from whyidle.monitor.traces.steps.recurring import BusiestProcess, FoundSteps

# Two ways to count steps that differ by more than this do not count the same thing.
_SAME: Final = 1.5
# A profiler slows a step down, and no two steps are alike.
AGREES: Final = 0.25
NO_STEP: Final = "what repeats takes {took:.3g} ms, and that is no step of the job"
# Where so much work starts after the host's last step, the host's steps do not hold it.
LATE: Final = 0.5
# Steps that do the same have the same number of operations, but for the first and the last.
UNEVEN: Final = 0.02


@dataclass(frozen=True, slots=True)
class TraceSteps:
    """Whole steps, in order, without overlap."""

    source: Literal["markers", "repetition", "none"]
    start: Ints
    end: Ints
    how: str
    # How long what repeats takes, in ticks, where that is no step of the job.
    repeats: int | None = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def median(self) -> int | None:
        """How long a step takes, in ticks; None without steps."""
        if not len(self):
            return None
        took = self.end - self.start
        return int(np.median(_uncut(took) if self.source == "repetition" else took))


def _uncut(took: Ints) -> Ints:
    """Leave out the first and last step where the record may have cut them short."""
    whole: Flags = took >= took[1:-1].min(initial=took.max())
    return took[whole]


def repeated(trace: Trace, launched: Sequence[Launches]) -> TraceSteps:
    """Find the steps by what repeats; ``launched``: the launches of each device."""
    job = BusiestProcess(trace, launched)
    # Nsight Systems records jobs of either.
    jitted = job.jitted_calls() if trace.format == "nsys" else None
    found = jitted or (_in_xplane(job) if trace.format == "xplane" else _in_torch(job))
    if found is None:
        none = np.zeros(0, np.int64)
        return TraceSteps("none", none, none, "no markers, and nothing repeats")
    return TraceSteps("repetition", *found)


def _in_xplane(job: BusiestProcess) -> FoundSteps | None:
    return job.jitted_calls() or job.kernels() or job.fetches() or job.calls()


def _in_torch(job: BusiestProcess) -> FoundSteps | None:
    if fetches := job.fetches():
        return fetches
    kernels, optimizer = job.kernels(), job.optimizer_steps()
    if kernels and optimizer:
        # What the kernels repeat may be a part of a step, or several: the optimizer knows.
        ratio = len(kernels[0]) / len(optimizer[0])
        return kernels if 1 / _SAME < ratio < _SAME else optimizer
    return kernels or optimizer or job.calls()


def agreeing(found: TraceSteps, step_ns: int | None, ticks_per_ns: int) -> TraceSteps:
    """Return the steps, if they come from markers or agree with the job's own count."""
    took = found.median
    if step_ns is None or took is None or found.source != "repetition":
        return found
    took_ns = took / ticks_per_ns
    if abs(took_ns - step_ns) <= AGREES * step_ns:
        return found
    none = np.zeros(0, np.int64)
    return TraceSteps("none", none, none, NO_STEP.format(took=took_ns / 1e6), took)


def as_run(trace: Trace, found: TraceSteps) -> TraceSteps:
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

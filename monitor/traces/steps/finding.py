"""The steps of a job: from its markers, else from what repeats.

What repeats is looked for where it was found to be reliable, in this order: fetches of a data
loader, kernels in the order of their launches, optimizer steps, calls of the framework. A JAX
job is one compiled call a step, so there the calls come first (right in 12 of 12 traces).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from whyidle.monitor.traces.model import Flags, Ints, Trace
from whyidle.monitor.traces.steps.markers import marked
from whyidle.monitor.traces.steps.recurring import Found, Job

# Two ways to count steps that differ by more than this do not count the same thing.
_SAME: Final = 1.5


@dataclass(frozen=True, slots=True)
class Steps:
    """Whole steps, in order, without overlap."""

    source: Literal["markers", "repetition", "none"]
    start: Ints
    end: Ints
    how: str

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


def find(trace: Trace) -> Steps:
    """Find the steps of a trace and say how."""
    if by_marker := marked(trace):
        return Steps("markers", *by_marker)
    return repeated(trace)


def repeated(trace: Trace) -> Steps:
    """Find the steps by what repeats, whatever markers there are."""
    job = Job(trace)
    found = _in_xplane(job) if trace.format == "xplane" else _in_torch(job)
    if found is None:
        none = np.zeros(0, np.int64)
        return Steps("none", none, none, "no markers, and nothing repeats")
    return Steps("repetition", *found)


def _in_xplane(job: Job) -> Found | None:
    return job.jitted_calls() or job.kernels() or job.fetches() or job.calls()


def _in_torch(job: Job) -> Found | None:
    if fetches := job.fetches():
        return fetches
    kernels, optimizer = job.kernels(), job.optimizer_steps()
    if kernels and optimizer:
        # What the kernels repeat may be a part of a step, or several: the optimizer knows.
        ratio = len(kernels[0]) / len(optimizer[0])
        return kernels if 1 / _SAME < ratio < _SAME else optimizer
    return kernels or optimizer or job.calls()

"""The figures of a device, by exact union of intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

import numpy as np

from whyidle.monitor.traces.causes import COPIES, Cause
from whyidle.monitor.traces.intervals import length
from whyidle.monitor.traces.model import Flags, Ops


@dataclass(frozen=True, slots=True)
class Totals:
    """Ticks and counts. Busy is the union of all work, copies included."""

    span: int
    busy: int
    idle: int
    compute: int
    comm: int
    exposed_comm: int
    copy: int
    exposed_copy: int
    kernels: int
    comm_kernels: int
    copies: int

    @property
    def operations(self) -> int:
        """How many there were in all."""
        return self.kernels + self.comm_kernels + self.copies


def totals(ops: Ops) -> Totals:
    """Measure one device; its operations come sorted by start, and there is at least one."""
    is_comm = ops.kind == Cause.COMM
    is_copy = np.isin(ops.kind, COPIES)
    is_compute = ~is_comm & ~is_copy
    span = int(ops.end.max() - ops.start[0])
    busy = length(ops.start, ops.end)
    compute = _length(ops, is_compute)
    no_copy = _length(ops, ~is_copy)
    return Totals(
        span=span,
        busy=busy,
        idle=span - busy,
        compute=compute,
        comm=_length(ops, is_comm),
        exposed_comm=no_copy - compute,
        copy=_length(ops, is_copy),
        exposed_copy=busy - no_copy,
        kernels=int(is_compute.sum()),
        comm_kernels=int(is_comm.sum()),
        copies=int(is_copy.sum()),
    )


def _length(ops: Ops, rows: Flags) -> int:
    return length(ops.start[rows], ops.end[rows])


def within(ops: Ops, start: int, end: int, counted: Flags) -> Totals:
    """Measure one device between two times; only the operations that are marked count."""
    there = ops.take(np.arange(len(ops)))
    there.start, there.end = ops.start.clip(start, end), ops.end.clip(start, end)
    is_comm, is_copy = ops.kind == Cause.COMM, np.isin(ops.kind, COPIES)
    return replace(
        totals(there),
        kernels=int((counted & ~is_comm & ~is_copy).sum()),
        comm_kernels=int((counted & is_comm).sum()),
        copies=int((counted & is_copy).sum()),
    )


def added(parts: Iterable[Totals], span: int) -> Totals:
    """Add up what was measured in one window after the other."""
    sums = np.sum([astuple(part) for part in parts], axis=0).tolist()
    found = Totals(*sums)
    return replace(found, span=span, idle=span - found.busy)

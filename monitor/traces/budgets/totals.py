"""The figures of a device, by exact union of intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

import numpy as np

from whyidle.monitor.traces.causes import COPIES, Cause
from whyidle.monitor.traces.intervals import length, sweep, tally
from whyidle.monitor.traces.model import EVER, Flags, Ops

_COMPUTE, _COMM, _COPY, _NOTHING = range(4)
_WORK = np.zeros(len(Cause), np.int8)
_WORK[Cause.COMM] = _COMM
_WORK[list(COPIES)] = _COPY


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
    work = _WORK[ops.kind]
    # Of what runs side by side the first counts, and communication and copies only where exposed.
    line = sweep(ops.start, ops.end, work, _NOTHING)
    ticks = np.zeros(_NOTHING + 1, np.int64)
    tally(line.time[:-1], line.time[1:], line.label[:-1], (int(ops.start[0]), EVER), ticks)
    compute, comm, copy = ticks[:_NOTHING].tolist()
    counts = np.bincount(work, minlength=_NOTHING).tolist()
    span, busy = int(ops.end.max() - ops.start[0]), compute + comm + copy
    return Totals(
        span=span,
        busy=busy,
        idle=span - busy,
        compute=compute,
        comm=_length(ops, work == _COMM),
        exposed_comm=comm,
        copy=_length(ops, work == _COPY),
        exposed_copy=copy,
        kernels=counts[_COMPUTE],
        comm_kernels=counts[_COMM],
        copies=counts[_COPY],
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

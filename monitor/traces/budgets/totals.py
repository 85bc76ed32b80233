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


def totals(ops: Ops, start: int, end: int, counted: Flags) -> Totals:
    """Measure one device between two times; only the operations that are marked count.

    They come sorted by start.
    """
    begin, until, work = ops.start.clip(start, end), ops.end.clip(start, end), _WORK[ops.kind]
    # Of what runs side by side the first counts, and communication and copies only where exposed.
    line = sweep(begin, until, work, _NOTHING)
    ticks = np.zeros(_NOTHING + 1, np.int64)
    tally(line.time[:-1], line.time[1:], line.label[:-1], (start, EVER), ticks)
    compute, comm, copy = ticks[:_NOTHING].tolist()
    counts = np.bincount(work[counted], minlength=_NOTHING).tolist()
    is_comm, is_copy, busy = work == _COMM, work == _COPY, compute + comm + copy
    return Totals(
        span=end - start,
        busy=busy,
        idle=end - start - busy,
        compute=compute,
        comm=length(begin[is_comm], until[is_comm]),
        exposed_comm=comm,
        copy=length(begin[is_copy], until[is_copy]),
        exposed_copy=copy,
        kernels=counts[_COMPUTE],
        comm_kernels=counts[_COMM],
        copies=counts[_COPY],
    )


def added(parts: Iterable[Totals], span: int) -> Totals:
    """Add up what was measured in one window after the other."""
    sums = np.sum([astuple(part) for part in parts], axis=0).tolist()
    found = Totals(*sums)
    return replace(found, span=span, idle=span - found.busy)

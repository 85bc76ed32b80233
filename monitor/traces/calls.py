"""How often the host made each call: of the framework, of the driver; per step where it is known.

JAX records one call as two spans of the same name, one within the other: that counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Flags, Ints, Spans, Table, Trace
from whyidle.monitor.traces.steps import TraceSteps

# Names in the list: the most frequent calls, and those that took longest.
LONGEST_LIST: Final = 60
# Frames of Python are lines of code, not calls of a framework; a capture has its own account.
_LEFT_OUT: Final = (Cause.PYTHON, Cause.BLOCKED, Cause.GC)
_TWICE: Final = "PjitFunction("
# Seldom or short, and yet asked for: what a backward pass of torch's begins with, or is begun by in
# turn, and who skips the padding of a batch.
ALWAYS_LISTED: Final = frozenset(
    {
        "aten::ones_like",
        "CheckpointFunctionBackward",
        "aten::_pack_padded_sequence",
        "aten::_nested_tensor_from_mask",
    }
)


@dataclass(frozen=True, slots=True)
class CallTotal:
    """All calls of one name. Times are ticks."""

    name: str
    count: int
    total: int
    # ``None``: the steps are not known.
    per_step: float | None


@dataclass(slots=True)
class CallSums(Table):
    """One row a name of the trace; those of one window after the other add up."""

    count: Ints
    total: Ints
    in_steps: Ints


def calls(trace: Trace, steps: TraceSteps) -> list[CallTotal]:
    """Return the most frequent calls and the longest ones, the most frequent first."""
    rows = _rows(trace.host)
    sums = _sums(trace, rows, steps)
    names = most_called(sums, trace)
    for name in names:
        if trace.names[name].startswith(_TWICE):
            one = _outermost(trace.host, rows[trace.host.name[rows] == name], steps)
            sums.count[name], sums.total[name], sums.in_steps[name] = one
    return listed(sums, names, trace, steps)


def call_sums(trace: Trace, steps: TraceSteps) -> CallSums:
    """Add up the calls of each name, nested or not."""
    return _sums(trace, _rows(trace.host), steps)


def listed(sums: CallSums, names: list[int], trace: Trace, steps: TraceSteps) -> list[CallTotal]:
    """Return the calls of these names, the most frequent first."""
    found = []
    for name in names:
        per_step = int(sums.in_steps[name]) / len(steps) if len(steps) else None
        count, total = int(sums.count[name]), int(sums.total[name])
        found.append(CallTotal(trace.names[name], count, total, per_step))
    return sorted(found, key=lambda called: -called.count)


def most_called(sums: CallSums, trace: Trace) -> list[int]:
    """Return the names of the most frequent calls, of the longest ones, and of some others."""
    most = np.argsort(-sums.count, kind="stable")[:LONGEST_LIST]
    longest = np.argsort(-sums.total, kind="stable")[:LONGEST_LIST]
    known = enumerate(trace.names[: len(sums)])
    asked = [at for at, name in known if name in ALWAYS_LISTED]
    every = dict.fromkeys([*most.tolist(), *longest.tolist(), *asked])
    return [name for name in every if sums.count[name]]


def _rows(host: Spans) -> Ints:
    return np.flatnonzero(~np.isin(host.kind, _LEFT_OUT) & (host.name >= 0))


def _sums(trace: Trace, rows: Ints, steps: TraceSteps) -> CallSums:
    host, size = trace.host, len(trace.names)
    inside = rows[_inside(host.start[rows], steps)]
    return CallSums(
        count=np.bincount(host.name[rows], minlength=size),
        total=_totals(host, rows, size),
        in_steps=np.bincount(host.name[inside], minlength=size),
    )


def _totals(host: Spans, rows: Ints, names: int) -> Ints:
    took = (host.end[rows] - host.start[rows]).astype(np.float64)
    return np.bincount(host.name[rows], took, names).astype(np.int64)


def _inside(start: Ints, steps: TraceSteps) -> Flags:
    if not len(steps):
        return np.zeros(len(start), bool)
    found: Flags = (start >= steps.start[0]) & (start < steps.end[-1])
    return found


def _outermost(host: Spans, rows: Ints, steps: TraceSteps) -> tuple[int, int, int]:
    """Leave out the spans that lie within the one before them on their thread."""
    rows = rows[np.argsort(host.thread[rows], kind="stable")]
    start, end, thread = host.start[rows], host.end[rows], host.thread[rows]
    inner = np.zeros(len(rows), bool)
    inner[1:] = (thread[1:] == thread[:-1]) & (start[1:] < end[:-1]) & (end[1:] <= end[:-1])
    outer = ~inner
    total = int((end[outer] - start[outer]).sum())
    return int(outer.sum()), total, int(_inside(start[outer], steps).sum())

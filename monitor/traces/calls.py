"""How often the host made each call: of the framework, of the driver; per step where it is known.

JAX records one call as two spans of the same name, one within the other: that counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Flags, Ints, Spans, Trace
from whyidle.monitor.traces.steps import TraceSteps

# Names in the list: the most frequent calls, and those that took longest.
LONGEST_LIST: Final = 60
# Frames of Python are lines of code, not calls of a framework; a capture has its own account.
_LEFT_OUT: Final = (Cause.PYTHON, Cause.BLOCKED, Cause.GC)
_TWICE: Final = "PjitFunction("


@dataclass(frozen=True, slots=True)
class CallTotal:
    """All calls of one name. Times are ticks."""

    name: str
    count: int
    total: int
    # ``None``: the steps are not known.
    per_step: float | None


def calls(trace: Trace, steps: TraceSteps) -> list[CallTotal]:
    """Return the most frequent calls and the longest ones, the most frequent first."""
    host = trace.host
    rows = np.flatnonzero(~np.isin(host.kind, _LEFT_OUT) & (host.name >= 0))
    if not len(rows):
        return []
    counts = np.bincount(host.name[rows], minlength=len(trace.names))
    totals = _totals(host, rows, len(trace.names))
    most = np.argsort(-counts, kind="stable")[:LONGEST_LIST]
    longest = np.argsort(-totals, kind="stable")[:LONGEST_LIST]
    names = dict.fromkeys(n for n in [*most.tolist(), *longest.tolist()] if counts[n])
    inside = _inside(host.start[rows], steps)
    in_steps = np.bincount(host.name[rows[inside]], minlength=len(trace.names))
    found = []
    for name in names:
        one = _Sum(int(counts[name]), int(totals[name]), int(in_steps[name]))
        if trace.names[name].startswith(_TWICE):
            one = _outermost(host, rows[host.name[rows] == name], steps)
        per_step = one.in_steps / len(steps) if len(steps) else None
        found.append(CallTotal(trace.names[name], one.count, one.total, per_step))
    return sorted(found, key=lambda called: -called.count)


@dataclass(frozen=True, slots=True)
class _Sum:
    count: int
    total: int
    in_steps: int


def _totals(host: Spans, rows: Ints, names: int) -> Ints:
    took = (host.end[rows] - host.start[rows]).astype(np.float64)
    return np.bincount(host.name[rows], took, names).astype(np.int64)


def _inside(start: Ints, steps: TraceSteps) -> Flags:
    if not len(steps):
        return np.zeros(len(start), bool)
    found: Flags = (start >= steps.start[0]) & (start < steps.end[-1])
    return found


def _outermost(host: Spans, rows: Ints, steps: TraceSteps) -> _Sum:
    """Leave out the spans that lie within the one before them on their thread."""
    rows = rows[np.argsort(host.thread[rows], kind="stable")]
    start, end, thread = host.start[rows], host.end[rows], host.thread[rows]
    inner = np.zeros(len(rows), bool)
    inner[1:] = (thread[1:] == thread[:-1]) & (start[1:] < end[:-1]) & (end[1:] <= end[:-1])
    outer = ~inner
    total = int((end[outer] - start[outer]).sum())
    return _Sum(int(outer.sum()), total, int(_inside(start[outer], steps).sum()))

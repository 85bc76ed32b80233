"""How often the host made each call: of the framework, of the driver; per step where it is known.

JAX records one call as two spans of the same name, one within the other: that counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Flags, Ints, Table, Trace
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
    """One row a name of the trace; those of one stretch after the other add up."""

    count: Ints
    total: Ints
    in_steps: Ints
    # Of these the spans that record a call once more.
    again_count: Ints
    again_total: Ints
    again_in_steps: Ints


def call_sums(trace: Trace, steps: TraceSteps) -> CallSums:
    """Add up the calls of each name."""
    host, size = trace.host, len(trace.names)
    rows = np.flatnonzero(~np.isin(host.kind, _LEFT_OUT) & (host.name >= 0))
    columns = []
    for some in (rows, _again(trace, rows)):
        name, start = host.name[some], host.start[some]
        took = (host.end[some] - start).astype(np.float64)
        columns += [
            np.bincount(name, minlength=size),
            np.bincount(name, took, size).astype(np.int64),
            np.bincount(name[_inside(start, steps)], minlength=size),
        ]
    return CallSums(*columns)


def most_called(sums: CallSums, trace: Trace, steps: TraceSteps) -> list[CallTotal]:
    """Return the most frequent calls, the longest ones, and some others, by how many they are."""
    most = np.argsort(-sums.count, kind="stable")[:LONGEST_LIST]
    longest = np.argsort(-sums.total, kind="stable")[:LONGEST_LIST]
    known = enumerate(trace.names[: len(sums)])
    asked = [at for at, name in known if name in ALWAYS_LISTED]
    found = []
    for name in dict.fromkeys([*most.tolist(), *longest.tolist(), *asked]):
        if not sums.count[name]:
            continue
        count = int(sums.count[name] - sums.again_count[name])
        total = int(sums.total[name] - sums.again_total[name])
        in_steps = int(sums.in_steps[name] - sums.again_in_steps[name])
        per_step = in_steps / len(steps) if len(steps) else None
        found.append(CallTotal(trace.names[name], count, total, per_step))
    return sorted(found, key=lambda called: -called.count)


def _inside(start: Ints, steps: TraceSteps) -> Flags:
    if not len(steps):
        return np.zeros(len(start), bool)
    found: Flags = (start >= steps.start[0]) & (start < steps.end[-1])
    return found


def _again(trace: Trace, rows: Ints) -> Ints:
    """Return the rows of jitted calls within the one before them, of one name and thread."""
    jitted = np.array([name.startswith(_TWICE) for name in trace.names], np.bool_)
    if not jitted.any():
        return rows[:0]
    host, rows = trace.host, rows[jitted[trace.host.name[rows]]]
    rows = rows[np.lexsort((host.thread[rows], host.name[rows]))]
    one, next_ = rows[:-1], rows[1:]
    same = (host.thread[next_] == host.thread[one]) & (host.name[next_] == host.name[one])
    within = (host.start[next_] < host.end[one]) & (host.end[next_] <= host.end[one])
    found: Ints = next_[same & within]
    return found

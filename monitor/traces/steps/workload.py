"""What the busiest process of a trace submits, in order: the work that steps are counted by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whyidle.monitor.traces import launches
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.model import Flags, Ids, Ints, Spans, Table, Trace


@dataclass(slots=True)
class Work(Table):
    """One row an operation, in the order in which it was submitted."""

    start: Ints  # of the call that submits it
    end: Ints
    name: Ids
    thread: Ids
    begun: Ints  # by the device; -1 where the host is the device
    done: Ints


def submitted(trace: Trace, launched: Sequence[Launches]) -> Work:
    """Return the operations of the busiest device; on a CPU the operators of the framework.

    Operations whose launch is not in the trace are left out, unless that is so for all: they
    were launched before it began, and belong to no step of it.
    """
    sizes = {i: len(d.ops) for i, d in enumerate(trace.devices) if d.kind != "cpu"}
    if not sizes:
        return _operators(trace)
    busiest = max(sizes, key=lambda i: sizes[i])
    ops = trace.devices[busiest].ops
    calls = launched[busiest]
    known = calls.how != launches.UNKNOWN
    if not known.any():
        return Work.of(start=ops.start, end=ops.end, name=ops.name, begun=ops.start, done=ops.end)
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    return Work(
        start=calls.start[rows],
        end=calls.end[rows],
        name=ops.name[rows],
        thread=calls.thread[rows],
        begun=ops.start[rows],
        done=ops.end[rows],
    )


def _operators(trace: Trace) -> Work:
    host = trace.host.take(trace.host.kind == Cause.OP)
    return Work.of(start=host.start, end=host.end, name=host.name, thread=host.thread)


def same_process(trace: Trace, work: Work) -> Spans:
    """Return the host spans of the process that submits most."""
    pids = [thread.pid for thread in trace.threads]
    doers = work.thread[work.thread >= 0]
    if len(set(pids)) <= 1 or not len(doers):
        return trace.host
    counts = np.bincount(doers, minlength=len(pids))
    totals: dict[int | None, int] = {}
    for pid, count in zip(pids, counts.tolist(), strict=True):
        totals[pid] = totals.get(pid, 0) + count
    most = max(totals, key=lambda pid: totals[pid])
    return trace.host.take(np.array([pid == most for pid in pids])[trace.host.thread])


def outermost(spans: Spans) -> Spans:
    """Return the spans of the thread that has most of them, without those inside others."""
    if not len(spans):
        return spans
    spans = spans.take(spans.thread == np.bincount(spans.thread).argmax())
    top: Flags = np.ones(len(spans), np.bool_)
    top[1:] = spans.start[1:] >= np.maximum.accumulate(spans.end)[:-1]
    return spans.take(top)

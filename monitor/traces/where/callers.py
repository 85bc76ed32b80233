"""Which line of the user's code asked for what a device does."""

from __future__ import annotations

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import numbered, present
from whyidle.monitor.traces.intervals import changes
from whyidle.monitor.traces.launches import UNKNOWN, Launches
from whyidle.monitor.traces.model import Device, Ids, Ints, Ops, Site, Trace
from whyidle.monitor.traces.where.nesting import NONE, Labels, disjoint
from whyidle.monitor.traces.where.user_code import UserCode


def asked_by(trace: Trace, device: Device, launches: Launches, code: UserCode) -> Ints:
    """Return the code point of each operation: the line that HLO names, else where it was launched.

    The line of HLO comes first because it is the operation's own; a launch runs a whole program.
    """
    ops = device.ops
    thread, start, known = launches.thread, launches.start, launches.how != UNKNOWN
    if device.kind == "cpu":  # work there has no launch: it runs when and where it is called
        thread = np.where(known, thread, _thread_of(trace, ops))
        start = np.where(known, start, ops.start)
        # XLA may also run it later on its own thread, when Python has moved on.
        known |= np.isin(thread, code.threads) | (trace.format != "xplane")
    launched = np.where(known, code.at(thread, start), NONE)
    if not trace.sources:
        return launched
    named = _named_by_hlo(trace, device, code)
    return np.where(named == NONE, launched, named)


def _thread_of(trace: Trace, ops: Ops) -> Ids:
    """The thread that a stream of the CPU is.

    A stream is called like its thread, and each has a name of its own, even where two threads are
    called the same: the last names of the trace, in the order of the threads with operators.
    """
    working = set(present(trace.host.thread[trace.host.kind == Cause.OP]))
    of_label: dict[str, list[int]] = {}
    for i, thread in enumerate(trace.threads):
        of_label.setdefault(thread.label, []).append(i)
    streams: dict[str, list[int]] = {}
    for i, name in enumerate(trace.names):
        if name in of_label:
            streams.setdefault(name, []).append(i)
    found = np.full(len(trace.names) + 1, NONE, np.int32)
    for label, names in streams.items():
        all_ = of_label[label]
        threads = [i for i in all_ if i in working] or all_[-1:]
        found[names] = threads[-1]
        last = min(len(names), len(threads))
        found[names[-last:]] = threads[-last:]
    return found[ops.stream]


def _named_by_hlo(trace: Trace, device: Device, code: UserCode) -> Ints:
    """The code point that the compiled program names for each operation."""
    ops, sites = device.ops, dict(trace.sources)
    op = ops.hlo_op
    if device.kind == "cpu":  # there the operation is what a span is named after
        op = np.where(op == NONE, ops.name, op)
        sites |= _in_any_program(trace)
    width = len(trace.names) + 1
    pairs, inverse = numbered((ops.hlo_module.astype(np.int64) + 1) * width + op + 1)
    found = [sites.get((pair // width - 1, pair % width - 1)) for pair in pairs.tolist()]
    return np.array([code.of_site(site) for site in found], np.int64)[inverse]


def _in_any_program(trace: Trace) -> dict[tuple[int, int], Site]:
    """The sites of operations whose program is not known, where all programs agree."""
    sites: dict[int, set[Site]] = {}
    for (_, op), site in trace.sources.items():
        sites.setdefault(op, set()).add(site)
    return {(NONE, op): found.pop() for op, found in sites.items() if len(found) == 1}


def running(ops: Ops, asked: Ints) -> Labels:
    """Return the code behind what runs; of several operations at once, that of the first."""
    reach = np.maximum.accumulate(ops.end) if len(ops) else ops.end
    start = np.maximum(ops.start, np.r_[ops.start[:1], reach[:-1]])
    real = ops.end > start
    return disjoint(start[real], ops.end[real], asked[real])


def following(ops: Ops, asked: Ints) -> Labels:
    """Return the code behind the operation that starts next."""
    first = changes(ops.start)
    ever = np.iinfo(np.int64).min
    return Labels(np.r_[ever, ops.start[first]], np.r_[asked[first], NONE])

"""What only the whole trace can show: calls that block, and the device of a job without a GPU."""

from __future__ import annotations

from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.intervals import sweep, union
from whyidle.monitor.traces.model import Device, Flags, Ids, Ints, Ops, Spans, Trace
from whyidle.monitor.traces.names import COPY_CALL, HOST_COLLECTIVE, LAUNCH

# Half of what 64 bits hold.
LARGEST_SUM: Final = 2.0**62
# A launch takes microseconds. Context creation, lazy loading or a full queue takes longer.
SLOW_CALL_NS: Final = 1_000_000
_PAGEABLE: Final = (Cause.H2D_PAGEABLE, Cause.D2H_PAGEABLE)
# While one of these holds on a thread, its operators are no useful work.
_NO_WORK: Final = tuple(range(Cause.GC, Cause.OPTIMIZER))
# While a thread of XLA's has one of these open, a program runs: not every operator of it is named.
_EXECUTES: Final = "ThunkExecutor::Execute"


def correct(trace: Trace) -> None:
    """Correct the kinds of host calls, and give a trace without device work its CPU."""
    tables: list[Spans | Ops] = [trace.host, *(device.ops for device in trace.devices)]
    shortened = sum(_shorten(table) for table in tables)
    if shortened:
        trace.warnings.append(f"{shortened:,} events last longer than can be: they count as none.")
    _mark_blocking_copies(trace)
    _mark_slow_calls(trace)
    _mark_tracing(trace)
    # Where a GPU was given work it is the device, also if none of it ran to its end in the window.
    is_gpus = trace.devices or trace.gpus_cut_off or gives_gpus_work(trace)
    if not is_gpus and (cpu := _cpu(trace)):
        trace.devices.append(cpu)


def gives_gpus_work(trace: Trace) -> bool:
    """Whether the host launched work of a GPU, whatever became of it."""
    launches = np.array([bool(LAUNCH.match(name)) for name in trace.names], np.bool_)
    calls = np.isin(trace.host.kind, (Cause.DRIVER_CALL, Cause.SLOW_CALL))
    return bool(_flagged(launches, trace.host.name[calls]).any())


def _shorten(table: Spans | Ops) -> int:
    """Set the longest events to no length where sums would no longer fit 64 bits."""
    lasts = table.end - table.start
    if len(lasts) * int(lasts.max(initial=0)) <= LARGEST_SUM and int(lasts.min(initial=0)) >= 0:
        return 0
    took = lasts.astype(np.float64)
    if took.sum() <= LARGEST_SUM:
        return 0
    order = np.argsort(took, kind="stable")
    absurd = order[np.cumsum(took[order]) > LARGEST_SUM]
    table.end[absurd] = table.start[absurd]
    return len(absurd)


def _mark_blocking_copies(trace: Trace) -> None:
    """The call that copies pageable memory waits until the copy is done."""
    ids = [d.ops.correlation[np.isin(d.ops.kind, _PAGEABLE)] for d in trace.devices]
    if not ids or not len(trace.calls):
        return
    pageable = np.concatenate(ids)
    row = trace.calls.row[np.isin(trace.calls.id, pageable[pageable >= 0])]
    copying = np.array([bool(COPY_CALL.search(name)) for name in trace.names], np.bool_)
    row = row[(trace.host.kind[row] == Cause.DRIVER_CALL) & copying[trace.host.name[row]]]
    trace.host.kind[row] = Cause.SYNC


def _mark_slow_calls(trace: Trace) -> None:
    host = trace.host
    slow = host.end - host.start > SLOW_CALL_NS * trace.ticks_per_ns
    host.kind[slow & (host.kind == Cause.DRIVER_CALL)] = Cause.SLOW_CALL


def _mark_tracing(trace: Trace) -> None:
    """A jitted call that compiles was traced and lowered first, which JAX does not record."""
    host = trace.host
    jitted = np.array([name.startswith("PjitFunction(") for name in trace.names], np.bool_)
    calls = np.flatnonzero((host.kind == Cause.AROUND) & _flagged(jitted, host.name))
    compiles = host.take(host.kind == Cause.COMPILE)
    for thread in present(compiles.thread):
        mine = calls[host.thread[calls] == thread]
        begun = compiles.start[compiles.thread == thread]
        within = np.searchsorted(begun, host.end[mine]) > np.searchsorted(begun, host.start[mine])
        host.kind[mine[within]] = Cause.COMPILE


def _flagged(flags: Flags, names: Ids) -> Flags:
    """Look names up; a span without one has no flag."""
    # NumPy takes twice as long to look up by short numbers.
    column: Flags = np.append(flags, False).take(names.astype(np.int64))
    return column


def _cpu(trace: Trace) -> Device | None:
    """Treat the operators of all threads, outside loader, sync and GC spans, as a device's work."""
    named = [_work_of(trace, thread) for thread in present(trace.host.thread)]
    ops = Ops.joined([*named, _executions(trace), _exchanges(trace)])
    if not len(ops):
        return None
    pids = {t.pid for t in trace.threads if t.pid is not None}
    pid = pids.pop() if len(pids) == 1 else None
    ops = ops.take(np.argsort(ops.start, kind="stable"))
    return Device("cpu", "0", ops, trace.machine, pid, trace.rank)


def _work_of(trace: Trace, thread: int) -> Ops:
    """The time of one thread that operators own, named by the outermost operator."""
    host = trace.host.take(np.flatnonzero(trace.host.thread == thread))
    ops = host.take(host.kind == Cause.OP)
    if not len(ops):
        return Ops.of()
    counts = (host.kind == Cause.OP) | np.isin(host.kind, _NO_WORK)
    line = sweep(host.start[counts], host.end[counts], host.kind[counts], Cause.HOLE)
    begin = np.flatnonzero(line.label == Cause.OP)
    # The operators that no other one encloses.
    top = ops.take(ops.start >= np.maximum.accumulate(np.r_[ops.start[0], ops.end[:-1]]))
    start, end = _cut(line.time[begin], line.time[begin + 1], top.start)
    trace.names.append(trace.threads[thread].label)
    return Ops.of(
        start=start,
        end=end,
        kind=np.full(len(start), Cause.HOST_WORK),
        name=top.name[np.searchsorted(top.start, start, "right") - 1],
        stream=np.full(len(start), len(trace.names) - 1),
    )


def _executions(trace: Trace) -> Ops:
    """The time in which any thread runs a program of XLA's."""
    executes = np.array([name.startswith(_EXECUTES) for name in trace.names], np.bool_)
    host = trace.host.take(_flagged(executes, trace.host.name))
    if not len(host):
        return Ops.of()
    start, end = union(host.start, host.end)
    trace.names.append(_EXECUTES)
    name = np.full(len(start), len(trace.names) - 1)
    kind = np.full(len(start), Cause.EXECUTION)
    return Ops.of(start=start, end=end, kind=kind, name=name, stream=name)


def _exchanges(trace: Trace) -> Ops:
    """The time in which gloo or its like exchanges data, on threads of its own."""
    like = np.array([bool(HOST_COLLECTIVE.match(name)) for name in trace.names], np.bool_)
    host = trace.host.take(_flagged(like, trace.host.name))
    if not len(host):
        return Ops.of()
    trace.names.append("communication")
    return Ops.of(
        start=host.start,
        end=host.end,
        kind=np.full(len(host), Cause.COMM),
        name=host.name,
        stream=np.full(len(host), len(trace.names) - 1),
    )


def _cut(start: Ints, end: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Split disjoint intervals at these times: one operator may follow another without a pause."""
    i = np.searchsorted(start, at, "right") - 1
    i, at = i[i >= 0], at[i >= 0]
    at = at[(at > start[i]) & (at < end[i])]
    return np.sort(np.r_[start, at]), np.sort(np.r_[end, at])

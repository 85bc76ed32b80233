"""The columns of a whole Kineto file -> a ``Trace``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from whyidle.monitor.traces.grouping import order_of
from whyidle.monitor.traces.kineto.header import (
    Header,
    base_ns,
    dropped,
    host_of,
    model_of,
    rank_of,
    whole,
    world_of,
)
from whyidle.monitor.traces.kineto.processes import name_processes
from whyidle.monitor.traces.kineto.rows import CATEGORIES, KERNEL, HostRows, Rows, WorkRows
from whyidle.monitor.traces.model import Device, Ids, Kinds, Links, Marks, Ops, Spans, Thread, Trace
from whyidle.monitor.traces.names import STEP_MARK, copy_cause, host_cause, kernel_cause
from whyidle.monitor.traces.spill import joined

# In nanoseconds: times since 1970 lie above, times since a base time below.
_YEAR_2001: Final = 10**18
_MARK: Final = -1
_UNKNOWN: Final = {
    "host": "the file does not name its machine: newer versions of PyTorch write it",
    "pid": "no host event says which process launched the work",
    "rank": "the file has no distributedInfo",
    "model": "the file does not describe this device in deviceProperties",
}


def assemble(rows: Rows, header: Header, origin: int | None = None) -> Trace:
    """Put the columns in order, with times from the first moment on, or from ``origin``."""
    host, work = joined(HostRows, rows.host), joined(WorkRows, rows.work)
    if origin is None:
        origin = min((int(table.start.min()) for table in (host, work) if len(table)), default=0)
    for table in (host, work):
        table.start, table.end = table.start - origin, table.end - origin
    trace = Trace("kineto", ticks_per_ns=1, events=rows.events)
    trace.dropped = dropped(header)
    trace.world, trace.group = world_of(header)
    trace.rank, trace.machine = rank_of(header), host_of(header)
    trace.origin_ns = origin if origin >= _YEAR_2001 else base_ns(header, origin)
    trace.names = list(rows.names)
    trace.threads, indices = _threads(rows)
    host.thread = indices[host.thread]
    _add_host(trace, host, rows)
    _add_devices(trace, work, rows)
    name_processes(trace)
    for device in trace.devices:
        device.rank, device.model = trace.rank, model_of(header, device.index)
        device.host = trace.machine
        for name, reason in _UNKNOWN.items():
            if getattr(device, name) is None:
                trace.unknown[name] = reason
    return trace


def _threads(rows: Rows) -> tuple[list[Thread], Ids]:
    """Name the threads; the same one may be written as a number here and as text there."""
    found: dict[tuple[str, str], int] = {}
    indices = [found.setdefault((str(pid), str(tid)), len(found)) for pid, tid in rows.threads]
    threads = [
        Thread(rows.thread_names.get((pid, tid), f"thread {tid}"), whole(pid), tid)
        for pid, tid in found
    ]
    return threads, np.array(indices, np.int32)


def _add_host(trace: Trace, host: HostRows, rows: Rows) -> None:
    kinds = _kinds(host, trace.names, len(CATEGORIES), _host_kind)
    order = order_of(host.start, -host.end)
    marks, order = order[kinds[order] == _MARK], order[kinds[order] != _MARK]
    trace.marks = Marks(host.start[marks], host.end[marks], host.name[marks], host.thread[marks])
    trace.host = Spans(
        start=host.start[order],
        end=host.end[order],
        thread=host.thread[order],
        kind=kinds[order],
        name=host.name[order],
    )
    place = np.full(len(host), -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    trace.calls = _moved(host.calls(), place)
    trace.externals = _moved(host.externals(), place)
    trace.stacks = _moved(host.stacks(), place)
    trace.stacks.id += _append(trace, rows.stack_names)


def _host_kind(category: int, name: str) -> int:
    if CATEGORIES[category] in ("operator", "annotation") and STEP_MARK.match(name):
        return _MARK
    return host_cause(CATEGORIES[category], name)


def _kinds(
    table: HostRows | WorkRows, names: list[str], width: int, cause: Callable[[int, str], int]
) -> Kinds:
    """Ask once for each pair of category and name what it means."""
    pairs = table.name.astype(np.int64) * width + table.category
    used = np.zeros(len(names) * width, np.bool_)
    used[pairs] = True
    kinds = np.zeros(len(used), np.int8)
    for pair in np.flatnonzero(used).tolist():
        kinds[pair] = cause(pair % width, names[pair // width])
    column: Kinds = kinds[pairs]
    return column


def _moved(links: Links, place: Ids) -> Links:
    """Let links point to where their spans stand now; a step marker is no span."""
    links.row = place[links.row]
    return links.take(links.row >= 0)


def _append(trace: Trace, names: Iterable[str]) -> int:
    """Add names to those of the trace; return the index of the first."""
    first = len(trace.names)
    trace.names.extend(names)
    return first


def _add_devices(trace: Trace, work: WorkRows, rows: Rows) -> None:
    kinds = _kinds(work, list(rows.kernels), 2, _work_kind)
    work.name = work.name + np.int32(_append(trace, rows.kernels))
    work.stream = work.stream + np.int32(_append(trace, rows.streams))
    noted, places = _append(trace, rows.messages.names), rows.places
    # File order is nearly that of time; a stable sort keeps what is left of it.
    order = order_of(work.start, work.correlation)
    for index, number in sorted(rows.devices.items(), key=lambda item: _natural(item[0])):
        mine = order[work.device[order] == number]
        part = work.take(mine)
        ops = Ops.of(
            start=part.start,
            end=part.end,
            kind=kinds[mine],
            name=part.name,
            stream=part.stream,
            correlation=part.correlation,
            external=part.external,
            bytes=part.bytes,
        )
        messages = rows.messages.of(ops, mine if places is None else places[mine], noted)
        trace.devices.append(Device(kind="gpu", index=index, ops=ops, messages=messages))


def _work_kind(category: int, name: str) -> int:
    return kernel_cause(name) if category == KERNEL else copy_cause(name)


def _natural(index: str) -> tuple[bool, int, str]:
    number = whole(index)
    return number is None, number or 0, index

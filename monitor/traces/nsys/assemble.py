"""The rows of an export, or of a part of it -> a ``Trace``."""

from __future__ import annotations

from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Device, Links, Marks, Ops, Spans, Trace
from whyidle.monitor.traces.nsys.facts import Facts
from whyidle.monitor.traces.nsys.naming import Naming
from whyidle.monitor.traces.nsys.ranges import MARK
from whyidle.monitor.traces.nsys.rows import HostRows, Rows, WorkRows
from whyidle.monitor.traces.nsys.tables import HOST
from whyidle.monitor.traces.spill import joined

_DRIVERS: Final = [number for number, table in enumerate(HOST) if table.says == "driver"]


def assemble(rows: Rows, naming: Naming, facts: Facts, origin: int | None = None) -> Trace:
    """Put the columns in order, with times from the first moment on, or from ``origin``."""
    host, work = joined(HostRows, rows.host), joined(WorkRows, rows.work)
    if origin is None:
        origin = min((int(table.start.min()) for table in (host, work) if len(table)), default=0)
    for table in (host, work):
        table.start, table.end = table.start - origin, table.end - origin
    trace = Trace("nsys", ticks_per_ns=1, events=rows.events, names=naming.names)
    trace.origin_ns = None if facts.began_ns is None else facts.began_ns + origin
    trace.threads = facts.threads(rows)
    _add_host(trace, host, naming)
    _add_devices(trace, work, naming, rows)
    facts.describe(trace)
    return trace


def _add_host(trace: Trace, host: HostRows, naming: Naming) -> None:
    name, kinds = naming.of_host(host)
    order = np.lexsort((-host.end, host.start))
    marks, order = order[kinds[order] == MARK], order[kinds[order] != MARK]
    trace.marks = Marks(host.start[marks], host.end[marks], name[marks], host.thread[marks])
    trace.host = Spans(
        start=host.start[order],
        end=host.end[order],
        thread=host.thread[order],
        kind=kinds[order],
        name=name[order],
    )
    ids = host.correlation[order]
    calls = np.flatnonzero(np.isin(host.table[order], _DRIVERS) & (ids >= 0))
    trace.calls = Links(row=calls.astype(np.int32), id=ids[calls])


def _add_devices(trace: Trace, work: WorkRows, naming: Naming, rows: Rows) -> None:
    (name, kind), stream = naming.of_work(work), naming.of_streams(work)
    order = np.lexsort((work.correlation, work.start))
    for (process, index), number in sorted(rows.devices.items()):
        mine = order[work.device[order] == number]
        ops = Ops.of(
            start=work.start[mine],
            end=work.end[mine],
            kind=kind[mine],
            name=name[mine],
            stream=stream[mine],
            correlation=work.correlation[mine],
            bytes=work.bytes[mine],
        )
        pid = None if process < 0 else process >> 24 & 0xFFFFFF
        trace.devices.append(Device("gpu", str(index), ops, pid=pid))

"""Traces by hand: a device as a list of operations, a host as a list of spans."""

from __future__ import annotations

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Device, Links, Ops, Spans, Thread, Trace

# start, end, cause, correlation id or None
Op = tuple[int, int, Cause, int | None]
# start, end, cause, thread, correlation id or None
Span = tuple[int, int, Cause, int, int | None]


def a_trace(ops: list[Op], spans: list[Span], *, threads: int = 2) -> Trace:
    """One GPU and some host threads; names are those of the causes."""
    names = [cause.name for cause in Cause]
    ops = sorted(ops, key=lambda op: (op[0], -1 if op[3] is None else op[3]))
    spans = sorted(spans, key=lambda span: (span[0], -span[1]))
    rows = [i for i, span in enumerate(spans) if span[4] is not None]
    return Trace(
        format="kineto",
        ticks_per_ns=1,
        events=len(ops) + len(spans),
        names=names,
        devices=[Device("gpu", "0", device_ops(ops))] if ops else [],
        threads=[Thread(f"thread {i}", pid=1, tid=str(i)) for i in range(threads)],
        host=Spans.of(
            start=[s[0] for s in spans],
            end=[s[1] for s in spans],
            kind=[s[2] for s in spans],
            thread=[s[3] for s in spans],
            name=[s[2] for s in spans],
        ),
        calls=Links.of(row=rows, id=[spans[i][4] for i in rows]),
    )


def device_ops(ops: list[Op]) -> Ops:
    return Ops.of(
        start=[o[0] for o in ops],
        end=[o[1] for o in ops],
        kind=[o[2] for o in ops],
        name=[o[2] for o in ops],
        correlation=[-1 if o[3] is None else o[3] for o in ops],
    )

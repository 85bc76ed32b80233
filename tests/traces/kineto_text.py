"""Kineto files by hand, and a trace as plain lists, so that two of them can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whyidle.monitor.traces import kineto
from whyidle.monitor.traces.model import Links, Ops, Trace
from whyidle.monitor.traces.opening import identify

Record = dict[str, Any]


def event(cat: str, name: str, ts: Any, dur: Any = 1, **args: Any) -> Record:
    """One event of process 7; thread 70 unless ``tid`` says otherwise."""
    tid = args.pop("tid", 70)
    spelled = {key.replace("_", " "): value for key, value in args.items()}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 7,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": spelled,
    }


def kernel(name: str, ts: Any, dur: Any = 1, **args: Any) -> Record:
    return event("kernel", name, ts, dur, **{"device": 0, "stream": 7, **args})


def document(events: list[Any], **keys: Any) -> str:
    return json.dumps({"schemaVersion": 1, **keys, "traceEvents": events}, indent=1)


def load(path: Path, text: str | bytes, chunk: int = 1 << 20) -> Trace:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return kineto.read(identify(path), chunk=chunk)


def plain(trace: Trace) -> dict[str, Any]:
    """Everything of a trace but the order of its names."""
    host, names = trace.host, trace.names
    threads = [(t.label, t.pid, t.tid) for t in trace.threads]
    return {
        "events": trace.events,
        "origin": trace.origin_ns,
        "host": [
            (s, e, threads[t], k, names[n])
            for s, e, t, k, n in zip(
                *(getattr(host, c).tolist() for c in ("start", "end", "thread", "kind", "name")),
                strict=True,
            )
        ],
        "calls": _links(trace.calls),
        "externals": _links(trace.externals),
        "stacks": [(row, names[i]) for row, i in _links(trace.stacks)],
        "marks": [
            (s, e, names[n])
            for s, e, n in zip(
                trace.marks.start.tolist(),
                trace.marks.end.tolist(),
                trace.marks.name.tolist(),
                strict=True,
            )
        ],
        "devices": [
            (d.kind, d.index, d.pid, d.rank, d.model, _ops(d.ops, names)) for d in trace.devices
        ],
        "unknown": trace.unknown,
        "warnings": trace.warnings,
    }


def _links(links: Links) -> list[tuple[int, int]]:
    return list(zip(links.row.tolist(), links.id.tolist(), strict=True))


def _ops(ops: Ops, names: list[str]) -> list[tuple[Any, ...]]:
    columns = (ops.start, ops.end, ops.kind, ops.correlation, ops.external, ops.bytes)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    named = [
        (names[n], names[s]) for n, s in zip(ops.name.tolist(), ops.stream.tolist(), strict=True)
    ]
    return [(*label, *row) for label, row in zip(named, rows, strict=True)]

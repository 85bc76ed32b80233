"""The rows of an export -> a ``Trace``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import numbered
from whyidle.monitor.traces.interning import Names
from whyidle.monitor.traces.model import Device, Ids, Links, Marks, Ops, Spans, Table, Trace
from whyidle.monitor.traces.names import copy_cause, host_cause, kernel_cause, system_cause
from whyidle.monitor.traces.nsys.calls import plain_call
from whyidle.monitor.traces.nsys.database import MISSING, Database
from whyidle.monitor.traces.nsys.facts import Facts
from whyidle.monitor.traces.nsys.ranges import MARK, joined_up, meaning
from whyidle.monitor.traces.nsys.rows import HostRows, Rows, WorkRows
from whyidle.monitor.traces.nsys.tables import COPY_KINDS, HOST, MEMORY_KINDS, UNIFIED, WORK, Says

_UNNAMED: Final = "(no name)"
_Kind = TypeVar("_Kind", bound=Table)


def _overhead(text: str) -> tuple[str, int]:
    cause = host_cause("annotation", text)
    return text, Cause.PROFILER if cause is Cause.AROUND else cause


_MEANINGS: Final[dict[Says, Callable[[str], tuple[str, int]]]] = {
    "driver": lambda text: (plain_call(text), host_cause("driver", plain_call(text))),
    "range": meaning,
    "library": lambda text: (text, host_cause("operator", text)),
    "waits": lambda text: (text, system_cause(text)),
    "overhead": _overhead,
    "compilation": lambda text: (text, Cause.COMPILE),
}


@dataclass(frozen=True, slots=True)
class _Words:
    """The texts of the file, and the names of the trace that are made of them."""

    texts: list[str]
    names: Names

    def of(self, place: int) -> str:
        """Return a text by its place; -1 is none."""
        return self.texts[place] if place >= 0 else _UNNAMED


def assemble(rows: Rows, database: Database) -> Trace:
    """Put the columns in order, with times from the first moment on."""
    host, work = _joined(HostRows, rows.host), _joined(WorkRows, rows.work)
    trace = Trace("nsys", ticks_per_ns=1, events=rows.events)
    origin = min((int(table.start.min()) for table in (host, work) if len(table)), default=0)
    for table in (host, work):
        table.start -= origin
        table.end -= origin
    facts = Facts(database)
    trace.origin_ns = None if facts.began_ns is None else facts.began_ns + origin
    trace.threads = facts.threads(rows)
    of_host = rows.strings.resolve(database, host.name)
    of_work = rows.strings.resolve(database, work.name)
    words = _Words(list(rows.strings.texts), Names())
    _add_host(trace, host, of_host, words)
    _add_devices(trace, work, of_work, words, rows)
    trace.names = list(words.names)
    trace.marks = joined_up(trace.marks, trace.names)
    facts.describe(trace)
    return trace


def _joined(kind: type[_Kind], parts: list[_Kind]) -> _Kind:
    """Make one table of many, which are let go."""
    if not parts:
        return kind.of()
    columns = {name: [getattr(part, name) for part in parts] for name in kind.columns()}
    parts.clear()
    return kind(**{name: np.concatenate(columns.pop(name)) for name in kind.columns()})


def _add_host(trace: Trace, host: HostRows, text: Ids, words: _Words) -> None:
    """Ask once what each text means in each table."""
    distinct, of = numbered((text.astype(np.int64) + 1) * len(HOST) + host.table)
    means = [
        _MEANINGS[HOST[one % len(HOST)].says](words.of(one // len(HOST) - 1))
        for one in distinct.tolist()
    ]
    kinds = np.array([kind for _, kind in means], np.int8)[of]
    name = np.array([words.names[label] for label, _ in means], np.int32)[of]
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
    drivers = [i for i, table in enumerate(HOST) if table.says == "driver"]
    ids = host.correlation[order]
    calls = np.flatnonzero(np.isin(host.table[order], drivers) & (ids >= 0))
    trace.calls = Links(row=calls.astype(np.int32), id=ids[calls])


def _add_devices(trace: Trace, work: WorkRows, text: Ids, words: _Words, rows: Rows) -> None:
    made = [_made_name(key) for key in rows.made_of]
    distinct, of = numbered((text.astype(np.int64) + 1) * (len(made) + 1) + work.extra)
    labels, kinds = [], []
    for one in distinct.tolist():
        place, extra = one // (len(made) + 1) - 1, one % (len(made) + 1)
        table = WORK[rows.made_of[extra][0]]
        label = words.of(place) if table.names else made[extra]
        labels.append(words.names[label])
        kinds.append(_work_cause(table.work, label))
    name, kind = np.array(labels, np.int32)[of], np.array(kinds, np.int8)[of]
    streams, stream_of = np.unique(work.stream, return_inverse=True)
    stream = np.array([words.names[_stream(s)] for s in streams.tolist()], np.int32)[stream_of]
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


def _stream(number: int) -> str:
    return "none" if number == MISSING else str(number)


def _work_cause(work: str, label: str) -> Cause:
    if work in ("copy", "set"):
        return copy_cause(label)
    return kernel_cause(label) if work == "kernel" else Cause.KERNEL


def _made_name(key: tuple[int, ...]) -> str:
    """Return the name of an operation that has none, as Kineto writes it."""
    match WORK[key[0]].work:
        case "copy":
            kind, source, destination = key[1:]
            way = COPY_KINDS[kind] if 0 <= kind < len(COPY_KINDS) else ""
            unified = kind in UNIFIED
            ends = [
                "Managed" if unified and memory in ("Unknown", "Pageable") else memory
                for memory in (_memory(source), _memory(destination))
            ]
            return f"Memcpy {way} ({ends[0]} -> {ends[1]})".replace("  ", " ")
        case "set":
            return f"Memset ({_memory(key[1])})"
        case "graph":
            return f"CUDA graph {key[1]}" if key[1] >= 0 else "CUDA graph"
        case _:
            return "decompression of memory"


def _memory(kind: int) -> str:
    return MEMORY_KINDS[kind] if 0 <= kind < len(MEMORY_KINDS) else "Unknown"

"""Exports of Nsight Systems, written after the tables that NVIDIA documents, in three generations.

A ``Story`` is what a job did, in plain lists. It is written as an export of 2021, 2024 or 2026, or
as the JSON of Kineto: the account of both must be the same.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

Generation = Literal[2021, 2024, 2026]
GENERATIONS: tuple[Generation, ...] = (2021, 2024, 2026)
PID = 4242
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
MEMORIES = {"Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4, "Unknown": 7}
TYPES = {"mark": 34, "push": 59, "start": 60, "domain": 75}
MODEL = "NVIDIA H100 80GB HBM3"
EPOCH_NS = 1_790_000_000_000_000_000

# The columns of a table, and since when it has them.
COLUMNS: dict[str, dict[str, int]] = {
    "StringIds": {"id": 0, "value": 0},
    "ThreadNames": {"nameId": 0, "priority": 0, "globalTid": 0},
    "TARGET_INFO_GPU": {"id": 0, "name": 0, "uuid": 2024},
    "TARGET_INFO_CUDA_DEVICE": {"gpuId": 2024, "cudaId": 2024, "pid": 2024, "uuid": 2024},
    "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": 2024, "utcTime": 2024},
    "TARGET_INFO_SYSTEM_ENV": {"name": 2024, "value": 2024},
    "META_DATA_EXPORT": {"name": 2024, "value": 2024},
    "CUPTI_ACTIVITY_KIND_KERNEL": {
        **dict.fromkeys(("start", "end", "deviceId", "contextId", "streamId"), 0),
        "greenContextId": 2024,
        **dict.fromkeys(("correlationId", "globalPid", "demangledName", "shortName"), 0),
        "mangledName": 2024,
        "gridX": 0,
        "graphNodeId": 2024,
        "clusterX": 2026,
        "tensorSizeMinusOneElements": 2026,
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {
        **dict.fromkeys(("start", "end", "deviceId", "contextId", "streamId"), 0),
        **dict.fromkeys(("correlationId", "globalPid", "bytes", "copyKind"), 0),
        **dict.fromkeys(("srcKind", "dstKind"), 0),
        "graphNodeId": 2024,
        "copyCount": 2026,
    },
    "CUPTI_ACTIVITY_KIND_MEMSET": {
        **dict.fromkeys(("start", "end", "deviceId", "contextId", "streamId"), 0),
        **dict.fromkeys(("correlationId", "globalPid", "value", "bytes", "memKind"), 0),
    },
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {
        **dict.fromkeys(("start", "end", "deviceId", "contextId", "streamId"), 2024),
        **dict.fromkeys(("correlationId", "globalPid", "graphId", "graphExecId"), 2024),
    },
    "CUPTI_ACTIVITY_KIND_RUNTIME": {
        **dict.fromkeys(("start", "end", "eventClass", "globalTid", "correlationId"), 0),
        **dict.fromkeys(("nameId", "returnValue"), 0),
        "callchainId": 2024,
    },
    "OSRT_API": {
        **dict.fromkeys(("start", "end", "eventClass", "globalTid", "nameId", "callchainId"), 0),
    },
    "PROFILER_OVERHEAD": dict.fromkeys(("start", "end", "globalTid", "nameId"), 0),
    "NVTX_EVENTS": {
        **dict.fromkeys(("start", "end", "eventType", "rangeId", "text", "globalTid"), 0),
        **dict.fromkeys(("textId", "domainId"), 0),
        "eventId": 2026,
    },
    "GPU_METRICS": dict.fromkeys(("timestamp", "typeId", "metricId", "value"), 2024),
    "TARGET_INFO_GPU_METRICS": dict.fromkeys(
        ("typeId", "metricId", "metricName", "typeName"), 2024
    ),
    "SOMETHING_OF_TOMORROW": dict.fromkeys(("start", "end", "globalTid", "novelty"), 2026),
}
# The versions of interfaces, as the names of functions carry them.
VERSIONS = {"cudaMemcpyAsync": "_v3020", "cudaStreamSynchronize": "_v3020"}


@dataclass(frozen=True, slots=True)
class Op:
    """Work of a device; ``way`` for copies ("HtoD", from, to), for memsets ("set", memory)."""

    name: str
    start: int
    end: int
    correlation: int
    device: int = 0
    stream: int = 7
    pid: int = PID
    bytes: int = -1
    way: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """What a thread did; a "place" is a range that says nothing of what the host does in it."""

    what: Literal["call", "operator", "frame", "step", "named", "place", "wait", "overhead"]
    name: str
    start: int
    end: int
    tid: int = PID
    pid: int = PID
    correlation: int = -1


@dataclass(slots=True)
class Story:
    """All that a job did."""

    ops: list[Op] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


def gid(pid: int, tid: int = 0, machine: int = 1) -> int:
    return machine << 56 | pid << 24 | tid


class Export:
    """A file of one generation, row by row."""

    def __init__(self, path: Path, generation: Generation) -> None:
        path.unlink(missing_ok=True)
        self.generation = generation
        self.db = sqlite3.connect(path)
        self._strings: dict[str, int] = {}
        self._made: set[str] = set()

    def string(self, text: str) -> int:
        if text not in self._strings:
            # Ids begin somewhere, and are not in order of use.
            self._strings[text] = 3 + 7 * len(self._strings)
            self.put("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def put(self, table: str, **values: Any) -> None:
        """Add a row; the table is made when it is first needed, as nsys does."""
        columns = [c for c, since in COLUMNS[table].items() if since <= self.generation]
        if not columns:
            return
        if table not in self._made:
            old = self.generation == 2021
            kinds = {"value": "", "name": "TEXT", "text": "TEXT"}
            made = (f'"{c}" {kinds.get(c, "INTEGER")}{" NOT NULL" if old else ""}' for c in columns)
            self.db.execute(f"CREATE TABLE {table} ({', '.join(made)})")
            self._made.add(table)
        none = 0 if self.generation == 2021 else None
        row = [values.get(column, none) for column in columns]
        self.db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)

    def close(self) -> None:
        self.db.commit()
        self.db.close()


def write(story: Story, path: Path, generation: Generation = 2026) -> Path:
    """Write a story as an export."""
    export = Export(path, generation)
    export.put("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=f"{generation}.1.1")
    export.put("TARGET_INFO_SESSION_START_TIME", utcEpochNs=EPOCH_NS, utcTime="then")
    export.put("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="node7")
    for device in sorted({op.device for op in story.ops}):
        export.put("TARGET_INFO_GPU", id=device, name=MODEL, uuid=f"GPU-{device}")
    for tid, pid in sorted({(span.tid, span.pid) for span in story.spans}):
        export.put("ThreadNames", nameId=export.string(f"python {tid}"), globalTid=gid(pid, tid))
    for op in story.ops:
        put_op(export, op)
    for number, span in enumerate(story.spans, 1):
        put_span(export, span, number)
    domain = {"text": "NCCL", "eventType": TYPES["domain"], "domainId": 1, "eventId": 0}
    end = 0 if generation == 2021 else None
    export.put("NVTX_EVENTS", start=1, end=end, globalTid=gid(PID, PID), **domain)
    export.put("SOMETHING_OF_TOMORROW", start=1, end=2, globalTid=gid(PID, 5), novelty=9)
    export.close()
    return path


def put_op(export: Export, op: Op) -> None:
    row = {
        "start": op.start,
        "end": op.end,
        "deviceId": op.device,
        "contextId": 1,
        "streamId": op.stream,
        "correlationId": op.correlation,
        "globalPid": gid(op.pid),
        "bytes": op.bytes,
    }
    if not op.way:
        long, short = export.string(op.name), export.string(re.split(r"[<(]", op.name)[0])
        export.put("CUPTI_ACTIVITY_KIND_KERNEL", **row, demangledName=long, shortName=short,
                   mangledName=short, gridX=1, tensorSizeMinusOneElements="")  # fmt: skip
    elif op.way[0] == "set":
        kind = MEMORIES[op.way[1]]
        export.put("CUPTI_ACTIVITY_KIND_MEMSET", **row, value=0, memKind=kind)
    elif op.way[0] == "graph":
        export.put("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **row, graphId=3, graphExecId=4)
    else:
        way, source, destination = op.way
        export.put("CUPTI_ACTIVITY_KIND_MEMCPY", **row, copyKind=COPY_KINDS.get(way, 0),
                   srcKind=MEMORIES[source], dstKind=MEMORIES[destination])  # fmt: skip


def put_span(export: Export, span: Span, number: int) -> None:
    row = {"start": span.start, "end": span.end, "globalTid": gid(span.pid, span.tid)}
    if span.what == "call":
        name = export.string(span.name + VERSIONS.get(span.name, "_v10000"))
        export.put("CUPTI_ACTIVITY_KIND_RUNTIME", **row, eventClass=0, nameId=name,
                   correlationId=max(span.correlation, 0), returnValue=0)  # fmt: skip
    elif span.what == "wait":
        export.put("OSRT_API", **row, eventClass=27, nameId=export.string(span.name))
    elif span.what == "overhead":
        export.put("PROFILER_OVERHEAD", **row, nameId=export.string(span.name))
    else:
        added = f", seq = {number}, op_id = {number}" if span.what == "operator" else ""
        text = span.name + added
        registered = number % 3 == 0
        none = "" if export.generation == 2021 else None
        export.put("NVTX_EVENTS", **row, eventType=TYPES["start" if number % 5 == 0 else "push"],
                   text=none if registered else text, eventId=number, domainId=0,
                   textId=export.string(text) if registered else (none and 0))  # fmt: skip


def as_kineto(story: Story) -> str:
    """Write a story as Kineto does; a place in the program is nothing that it would record."""
    events = [
        _event(
            "kernel" if not op.way else "gpu_memset" if op.way[0] == "set" else "gpu_memcpy",
            _kineto_name(op), (op.start, op.end), (op.device, op.stream),
            device=op.device, stream=op.stream, correlation=op.correlation,
            **({"bytes": op.bytes} if op.bytes >= 0 else {}),
        )
        for op in story.ops
    ]  # fmt: skip
    category = {
        "call": "cuda_runtime", "operator": "cpu_op", "frame": "python_function",
        "step": "user_annotation", "named": "user_annotation", "overhead": "overhead",
    }  # fmt: skip
    for span in story.spans:
        if span.what not in ("place", "wait"):
            args = {"correlation": span.correlation} if span.correlation >= 0 else {}
            cat = category[span.what]
            times, thread = (span.start, span.end), (span.pid, span.tid)
            events.append(_event(cat, span.name, times, thread, **args))
    devices = [{"id": device, "name": MODEL} for device in sorted({op.device for op in story.ops})]
    return json.dumps({"deviceProperties": devices, "traceEvents": events})


def _event(
    cat: str, name: str, times: tuple[int, int], thread: tuple[int, int], **args: Any
) -> dict[str, Any]:
    start, end = times
    return {"ph": "X", "cat": cat, "name": name, "pid": thread[0], "tid": thread[1],
            "ts": start / 1000, "dur": (end - start) / 1000, "args": args}  # fmt: skip


def _kineto_name(op: Op) -> str:
    if not op.way:
        return op.name
    if op.way[0] == "set":
        return f"Memset ({op.way[1]})"
    return f"Memcpy {op.way[0]} ({op.way[1]} -> {op.way[2]})"


WHAT: dict[str, Any] = {
    "cuda_runtime": "call", "cuda_driver": "call", "Runtime": "call", "cpu_op": "operator",
    "Operator": "operator", "user_annotation": "place", "python_function": "frame",
    "overhead": "overhead",
}  # fmt: skip
KERNELS = ("kernel", "Kernel")
COPIES = ("gpu_memcpy", "Memcpy", "gpu_memset", "Memset")
_COPY = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")
_NAMED = re.compile(r"ProfilerStep#|nccl:|Optimizer\.|enumerate\(|## data_load")
_SET = re.compile(r"Memset \((\w+)\)")


def story_of(path: Path) -> Story:
    """Read a real file of Kineto, record by record, as the story of its job."""
    text = gzip.decompress(path.read_bytes())
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    timed = [e for e in events if e.get("ph") == "X"]
    first = min(_ns(e["ts"]) for e in timed)
    spans = [span for e in timed if (span := _span_of(e, first))]
    launched = {span.correlation: span.pid for span in spans if span.correlation >= 0}
    pid = next(iter(launched.values()), PID)
    ops = [op for e in timed if (op := _op_of(e, first, launched, pid))]
    return Story(ops, spans)


def _ns(microseconds: Any) -> int:
    return round(Decimal(str(microseconds)) * 1000)


def _times(event: dict[str, Any], first: int) -> tuple[int, int]:
    start = _ns(event["ts"])
    # A session begins before its first record.
    return start - first + 1000, start - first + 1000 + _ns(event.get("dur", 0))


def _span_of(event: dict[str, Any], first: int) -> Span | None:
    what, name = WHAT.get(event.get("cat", "")), event["name"]
    if what is None or (what == "frame" and ".py(" not in name):
        return None
    if what == "place" and _NAMED.match(name):
        what = "named"
    start, end = _times(event, first)
    args = event.get("args", {})
    correlation = int(args.get("correlation", -1)) if what == "call" else -1
    # Old profilers wrote addresses instead of the numbers of threads.
    tid, pid = int(event["tid"]) & 0xFFFFFF, int(event["pid"]) & 0xFFFFFF
    return Span(what, name, start, end, tid, pid, correlation)


def _op_of(event: dict[str, Any], first: int, launched: dict[int, int], pid: int) -> Op | None:
    cat, args = event.get("cat", ""), event.get("args", {})
    if cat not in (*KERNELS, *COPIES):
        return None
    start, end = _times(event, first)
    copy, memset = _COPY.match(event["name"]), _SET.match(event["name"])
    way: tuple[str, ...] = copy.groups() if copy else ("set", memset[1]) if memset else ()
    correlation = int(args.get("correlation", -1))
    return Op(event["name"], start, end, correlation, int(args.get("device", event["pid"])),
              int(args.get("stream", event["tid"])), launched.get(correlation, pid),
              int(args.get("bytes", -1)), way)  # fmt: skip

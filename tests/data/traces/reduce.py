"""Make real/ again from the full public files: ``python tests/data/traces/reduce.py FOLDER``.

FOLDER holds ``kineto/NAME.json.gz`` and ``xplane/NAME.xplane.pb`` under the names of real/INDEX.md.
Of a Kineto file stay the fields that a reader of time needs, and of records that take no time the
first of each kind; short calls of Python are gone, and of some files whole steps. XPlanes are only
compressed. ``truth/`` is counted here from what is left, in plain Python and without our reader:
record by record, the union of intervals.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

REAL = Path(__file__).with_name("real")
Event = dict[str, Any]
Span = tuple[int, int]

# Every argument that monitor/traces/kineto/record.py decodes; a test compares the two.
FIELDS = {
    *("device", "stream", "correlation", "External id", "external id", "bytes", "Call stack"),
    "name",
    *("Collective name", "Process Group Name", "Process Group Ranks", "In msg nelems"),
    *("Out msg nelems", "dtype", "Seq"),
}
# Which of a file's marked steps stay, counted from 0; a file that is not named keeps all.
STEPS = {
    "a100_nccl_small": (0, 2),
    "v100_2rank_nccl": (2, 5),
}
FRAME_NS = 20_000  # shorter calls of Python are gone: in a step of 200 ms each is a ten-thousandth
TIMELESS = 3  # how many stay of each kind of record that no account of time reads
KERNELS = {"kernel", "Kernel"}
MEMORY = {"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
COMMUNICATION = re.compile("nccl|rccl", re.IGNORECASE)
SHORT_NS = 10_000
NAME_LENGTH = 160
TOP = 15


def nanoseconds(microseconds: float | str) -> int:
    """Round as the definition does: the decimal number of microseconds, in whole nanoseconds."""
    return round(Decimal(str(microseconds)) * 1000)


def span(event: Event) -> Span:
    """Return when an event began and ended."""
    start = nanoseconds(event["ts"])
    return start, start + nanoseconds(event.get("dur", 0))


def marks(events: Iterable[Event]) -> list[Event]:
    """Return the user's step markers in the order of time."""
    wanted = ("user_annotation", "cpu_op", "Operator")
    found = [
        e
        for e in events
        if e.get("cat") in wanted and re.fullmatch(r"ProfilerStep#\d+", e.get("name", ""))
    ]
    return sorted(found, key=lambda e: Decimal(str(e["ts"])))


def cut(events: list[Event], steps: tuple[int, int]) -> list[Event]:
    """Keep what the host did in these steps, and what devices did for it."""
    kept = marks(events)[slice(*steps)]
    low, high = span(kept[0])[0], span(kept[-1])[1]
    of_devices = KERNELS | MEMORY
    launched = {
        e["args"]["correlation"]
        for e in events
        if e.get("cat") not in of_devices
        and "correlation" in e.get("args", {})
        and low <= span(e)[0] < high
    }

    def stays(event: Event) -> bool:
        if event.get("cat") in of_devices:
            return event["args"]["correlation"] in launched
        return event["ph"] == "M" or low <= nanoseconds(event["ts"]) < high

    return [event for event in events if stays(event)]


def thin(events: Iterable[Event]) -> Iterable[Event]:
    """Drop what says nothing about time."""
    seen: Counter[tuple[str | None, str]] = Counter()
    for event in events:
        kind = (event.get("cat"), event["ph"])
        seen[kind] += 1
        if event.get("cat") == "python_function" and nanoseconds(event["dur"]) < FRAME_NS:
            continue
        if event["ph"] in "XM":
            args = {k: v for k, v in event.get("args", {}).items() if k in FIELDS}
            if event["ph"] == "M":
                args = event.get("args", {})
            rest = {k: v for k, v in event.items() if k != "args"}
            yield {**rest, "args": args} if args else rest
        elif seen[kind] <= TIMELESS:
            yield event


def union(spans: Iterable[Span]) -> list[Span]:
    """Merge intervals that touch."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(spans: Iterable[Span]) -> int:
    """Return the time that intervals cover together."""
    return sum(end - start for start, end in union(spans))


def truth_of_device(work: list[Event]) -> dict[str, Any]:
    """Count what one device did."""
    kernels = [e for e in work if e["cat"] in KERNELS]
    memory = [e for e in work if e["cat"] in MEMORY]
    comm = [span(e) for e in kernels if COMMUNICATION.search(e["name"])]
    compute = [span(e) for e in kernels if not COMMUNICATION.search(e["name"])]
    copies = [span(e) for e in memory]
    everything = compute + comm + copies
    whole = max(end for _, end in everything) - min(start for start, _ in everything)
    busy = length(everything)
    sets = sum("emset" in e["cat"] for e in memory)
    lasted = [(e["name"][:NAME_LENGTH], span(e)[1] - span(e)[0]) for e in kernels]
    runs: dict[str, list[int]] = defaultdict(list)
    for name, ns in lasted:
        runs[name].append(ns)
    top = sorted(runs.items(), key=lambda item: -sum(item[1]))[:TOP]
    return {
        "n_kernels": len(compute),
        "n_comm": len(comm),
        "n_memcpy": len(memory) - sets,
        "n_memset": sets,
        "span_ns": whole,
        "busy_ns": busy,
        "idle_ns": whole - busy,
        "compute_union_ns": length(compute),
        "comm_union_ns": length(comm),
        "mem_union_ns": length(copies),
        "exposed_comm_ns": length(compute + comm) - length(compute),
        "exposed_mem_ns": busy - length(compute + comm),
        "sum_kernel_ns": sum(ns for _, ns in lasted),
        "short_kernels_lt10us": sum(ns < SHORT_NS for _, ns in lasted),
        "mem_ops": _moved(memory),
        "top_kernels": [{"name": n, "n": len(ns), "dur_ns": sum(ns)} for n, ns in top],
    }


def _moved(memory: list[Event]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for event in memory:
        one = found.setdefault(event["name"], {"n": 0, "dur_ns": 0, "bytes": 0})
        begun, ended = span(event)
        one["n"] += 1
        one["dur_ns"] += ended - begun
        one["bytes"] += event["args"].get("bytes", 0)
    for one in found.values():
        one["GBps"] = round(one["bytes"] / one["dur_ns"], 3) if one["dur_ns"] else 0.0
    return found


def truth(name: str, events: list[Event]) -> dict[str, Any]:
    """Count a whole file."""
    devices: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") in KERNELS | MEMORY:
            devices[str(event["args"]["device"])].append(event)
    return {
        "file": f"kineto/{name}.json.gz",
        "method": "tests/data/traces/reduce.py: unions of nanoseconds, record by record",
        "events": len(events),
        "devices": {index: truth_of_device(work) for index, work in sorted(devices.items())},
        "profiler_steps": [
            {"name": e["name"], "dur_ns": span(e)[1] - span(e)[0]} for e in marks(events)
        ],
    }


def packed(text: bytes) -> bytes:
    """Compress without the time of day: the same file each time."""
    return gzip.compress(text, 9, mtime=0)


def kineto(source: Path, out: Path) -> None:
    """Reduce one Kineto file and count what is left."""
    name = source.name.removesuffix(".json.gz")
    content = json.loads(gzip.decompress(source.read_bytes()))
    events = content.pop("traceEvents")
    if name in STEPS:
        events = cut(events, STEPS[name])
    content["traceEvents"] = list(thin(events))
    text = json.dumps(content, separators=(",", ":"))
    (out / "kineto" / source.name).write_bytes(packed(text.encode()))
    counted = json.dumps(truth(name, content["traceEvents"]), indent=1)
    (out / "truth" / f"{name}.json").write_text(counted + "\n")


def main() -> None:
    """Reduce every file of a folder."""
    folder = Path(sys.argv[1])
    for part in ("kineto", "xplane", "truth"):
        (REAL / part).mkdir(parents=True, exist_ok=True)
    for source in sorted((folder / "kineto").glob("*.json.gz")):
        kineto(source, REAL)
    for source in sorted((folder / "xplane").glob("*.xplane.pb")):
        (REAL / "xplane" / f"{source.name}.gz").write_bytes(packed(source.read_bytes()))
        name = source.name.removesuffix(".xplane.pb")
        # Nobody counts protobuf without a reader: what another one counted comes along unchanged.
        shutil.copyfile(folder / "truth" / f"{name}.json", REAL / "truth" / f"{name}.json")


if __name__ == "__main__":
    main()

"""Write a Kineto file of any size: the real job of two ranks in tests/data, step after step.

Run: .venv/bin/python benchmarks/kineto_file.py FILE [--events 216000]

The reduced file has neither flows nor launch configurations, which make up half of what a profiler
writes: they are put back, two flow records a launch and the arguments of a kernel. A record has
211 bytes so; it had 249 in the file that the reduced one was made of.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

REAL = Path(__file__).parents[1] / "tests/data/traces/real/kineto/v100_2rank_nccl.json.gz"
Event = dict[str, Any]
# Of a folder of ranks.
RANKS = 8
# What CUPTI reports of a kernel; an account of time does not need it.
LAUNCHED = {
    "queued": 0,
    "context": 1,
    "registers per thread": 32,
    "shared memory": 0,
    "blocks per SM": 32.0,
    "warps per SM": 128.0,
    "grid": [2560, 1, 1],
    "block": [128, 1, 1],
    "est. achieved occupancy %": 100,
}
# More records than this are compressed quickly, not well.
MANY = 1_000_000
# Marks of numbers: a value, and the end of a name.
_NUMBER = re.compile(r'"@(\d+)@"|~(\d+)~')
IDS = ("External id", "correlation")
# More than any id in the file, so that ids of two rounds never meet.
APART = 10_000_000


def write(path: Path, events: int, rank: int | None = None) -> None:
    """Write at least so many records: whole rounds of the real steps."""
    document = json.loads(gzip.decompress(REAL.read_bytes()))
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": RANKS}
    of_one = document.pop("traceEvents")
    timed = [e for e in of_one if e["ph"] == "X" and e["pid"] != "Spans"]
    low = min(e["ts"] for e in timed if "Step#" in e["name"])
    length = max(e["ts"] + e["dur"] for e in timed if "Step#" in e["name"]) - low
    others = [e for e in of_one if e["ph"] != "X"]
    numbers: list[tuple[int, int]] = []
    round_of = [again for e in timed for again in _repeated(e, length, numbers)]
    text = _lines(round_of)
    template = _NUMBER.sub("%d", text.replace("%", "%%"))
    order = [int(one or two) for one, two in _NUMBER.findall(text)]
    first, step = np.array(numbers, np.int64)[order].T
    with gzip.GzipFile(path, "wb", 6 if events < MANY else 1, mtime=0) as file:
        head = json.dumps({**document, "traceEvents": []})[:-2]
        file.write((head + _lines(others)).encode())
        for i in range(-(-(events - len(others)) // len(round_of))):
            file.write((",\n" + template % tuple((first + i * step).tolist())).encode())
        if rank is not None:
            # HTA leaves out the last step: an empty one, so that it sees all that we do.
            mark = next(e for e in timed if "Step#" in e["name"])
            last = {**mark, "name": f"ProfilerStep#{APART}", "ts": low + (i + 1) * length, "dur": 1}
            file.write((",\n" + json.dumps(last)).encode())
        file.write(b"]}")


def _lines(records: list[Event]) -> str:
    return json.dumps(records)[1:-1].replace('}, {"ph"', '},\n{"ph"')


def _repeated(event: Event, length: int, numbers: list[tuple[int, int]]) -> Iterator[Event]:
    """Yield the records of an event, with marks for the numbers that each round changes."""

    def counted(first: int, step: int) -> str:
        numbers.append((first, step))
        return f"@{len(numbers) - 1}@"

    ids = {k: counted(v, APART) for k, v in event.get("args", {}).items() if k in IDS}
    args = {**event.get("args", {}), **ids}
    on_device = "stream" in args
    if event["cat"] == "kernel":
        args |= LAUNCHED
    name, at = event["name"], counted(event["ts"], length)
    if name.startswith("ProfilerStep#"):
        name = f"ProfilerStep#{counted(int(name.partition('#')[2]), 3).replace('@', '~')}"
    yield {**event, "name": name, "ts": at, "args": args}
    if "correlation" in args and (on_device or "Launch" in name):
        flow = {"ph": "f" if on_device else "s", "id": args["correlation"], "pid": event["pid"]}
        yield {**flow, "tid": event["tid"], "ts": at, "cat": "ac2g", "name": "ac2g", "bp": "e"}


def main() -> None:
    """Write one file."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("file", type=Path)
    asked.add_argument("--events", type=int, default=216_000)
    given = asked.parse_args()
    write(given.file, given.events)


if __name__ == "__main__":
    main()

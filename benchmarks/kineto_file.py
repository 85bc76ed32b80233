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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REAL = Path(__file__).parents[1] / "tests/data/traces/real/kineto/v100_2rank_nccl.json.gz"
Event = dict[str, Any]
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
IDS = ("External id", "correlation")
# More than any id in the file, so that ids of two rounds never meet.
APART = 10_000_000


def write(path: Path, events: int) -> None:
    """Write at least so many records: whole rounds of the real steps."""
    document = json.loads(gzip.decompress(REAL.read_bytes()))
    of_one = document.pop("traceEvents")
    timed = [e for e in of_one if e["ph"] == "X"]
    low = min(e["ts"] for e in timed if "Step#" in e["name"])
    length = max(e["ts"] + e["dur"] for e in timed if "Step#" in e["name"]) - low
    written, rounds = [e for e in of_one if e["ph"] != "X"], 0
    while len(written) < events:
        written += [
            again for e in timed for again in _repeated(e, rounds, length) if e["pid"] != "Spans"
        ]
        rounds += 1
    text = json.dumps({**document, "traceEvents": written}).replace('}, {"ph"', '},\n{"ph"')
    path.write_bytes(gzip.compress(text.encode(), 6, mtime=0))


def _repeated(event: Event, rounds: int, length: int) -> Iterator[Event]:
    args = {k: v + rounds * APART if k in IDS else v for k, v in event.get("args", {}).items()}
    on_device = "stream" in args
    if event["cat"] == "kernel":
        args |= LAUNCHED
    name, at = event["name"], event["ts"] + rounds * length
    if name.startswith("ProfilerStep#"):
        name = f"ProfilerStep#{int(name.partition('#')[2]) + rounds * 3}"
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

"""What a stored trace costs: time to keep it, bytes per event, and the time to open a window of it.

A window is one step, opened by a process that has just started (imports
excluded), of a file that is not in memory.
Run: python benchmarks/store_traces.py [--events 200000 2000000] [--json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from results import Result, print_results

from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store.connect import for_writing, transaction
from whyidle.monitor.store.stored_traces import Kept, keep
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Device, Ints, Links, Marks, Ops, Spans, Thread, Trace

SEED = 7
OPENINGS = 20
BAR_MS = 50.0
# Of a step: kernels, each with its launch, an operator around that, and Python frames around it.
KERNELS = 1000
FRAMES = 4
EVENTS_A_STEP = KERNELS * (3 + FRAMES) + 1
NAMES = 3000
OPENING = """
import sys, time
from pathlib import Path
from whyidle.monitor.store.stored_traces import Kept
began = time.perf_counter()
with Kept.open(Path(sys.argv[1])) as kept:
    start, end = map(int, sys.argv[3:5])
    seen = kept.window(int(sys.argv[2]), start, end)
    names = {seen.names[i] for i in set(seen.host.name.tolist())}
    rows = len(seen.host) + sum(len(lane.ops) for lane in seen.lanes)
print((time.perf_counter() - began) * 1000, rows)
"""


def made_up(events: int) -> tuple[Trace, Segments, tuple[Ints, Ints]]:
    """Return a training job whose steps are alike, as those of real ones are."""
    rng = np.random.default_rng(SEED)
    steps = max(events // EVENTS_A_STEP, 1)
    n = steps * KERNELS
    name = np.tile(rng.integers(0, NAMES // 2, KERNELS), steps)
    usual = np.tile(rng.lognormal(9, 1.5, KERNELS), steps)
    length = (usual * rng.normal(1, 0.03, n).clip(0.5)).astype(np.int64) + 1000
    pause = (rng.exponential(2000, n) * (rng.random(n) < 0.4)).astype(np.int64)
    start = np.cumsum(length + pause) - length
    launch = np.maximum.accumulate(start - rng.integers(5000, 60_000, n))
    host = spans_around(launch, rng.integers(3000, 9000, n), name)
    edge = start.reshape(steps, KERNELS)[:, 0]
    ends = np.r_[edge[1:], start[-1] + length[-1]]
    trace = Trace(
        format="kineto",
        ticks_per_ns=1,
        events=events,
        names=[f"at::native::vectorized_elementwise_kernel<{i}>" for i in range(NAMES)],
        devices=[
            Device(
                "gpu",
                "0",
                Ops.of(
                    start=start,
                    end=start + length,
                    kind=np.zeros(n),
                    name=name,
                    stream=np.zeros(n),
                    correlation=np.arange(n),
                ),
            )
        ],
        threads=[Thread("thread 1 (python)", pid=1, tid="1")],
        host=host,
        calls=Links.of(row=np.flatnonzero(host.kind == Cause.DRIVER_CALL), id=np.arange(n)),
        marks=Marks.of(start=edge, end=ends, name=np.zeros(steps)),
    )
    return trace, budget_of(start, length), (edge, ends)


def spans_around(launch: Ints, length: Ints, name: Ints) -> Spans:
    """Return the launches, and what is around each."""
    kinds = (Cause.DRIVER_CALL, Cause.OP, *(Cause.PYTHON for _ in range(FRAMES)))
    layers = [
        (launch - 700 * depth, launch + length // 3 + 500 * depth, np.full(len(launch), kind),
         name + (NAMES // 2 if kind == Cause.PYTHON else 0))
        for depth, kind in enumerate(kinds)
    ]  # fmt: skip
    start, end, kind, names = (np.concatenate(column) for column in zip(*layers, strict=True))
    order = np.lexsort((-end, start))
    return Spans.of(
        start=start[order],
        end=end[order],
        thread=np.zeros(len(order)),
        kind=kind[order],
        name=names[order],
    )


def budget_of(start: Ints, length: Ints) -> Segments:
    """Return kernels and gaps in turn."""
    edges = np.ravel(np.column_stack([start, start + length]))
    cause = np.tile([Cause.KERNEL, Cause.DRIVER_CALL], len(start))[:-1]
    some = Segments.of(start=edges[:-1], end=edges[1:], cause=cause)
    return some.take(some.end > some.start)


def answer_of(trace: Trace) -> dict[str, Any]:
    """Return as much of an answer as is asked of it here."""
    device = dict.fromkeys(
        ("host", "pid", "rank", "model", "span_ns", "busy_ns", "idle_ns", "compute_ns", "comm_ns",
         "exposed_comm_ns", "copy_ns", "exposed_copy_ns", "kernels", "comm_kernels", "copies",
         "budget")
    )  # fmt: skip
    devices = [{**device, "index": d.index, "kind": d.kind} for d in trace.devices]
    return {"devices": devices, "top_kernels": []}


def forget(store: Path) -> None:
    """Let the kernel drop what it holds of the file in memory."""
    with store.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def openings_ms(store: Path, trace: int, windows: list[tuple[int, int]]) -> list[float]:
    """Return what each window took, and check that it was not empty."""
    took = []
    for start, end in windows:
        forget(store)
        command = [sys.executable, "-c", OPENING, str(store), str(trace), str(start), str(end)]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        ms, rows = printed.split()
        if not int(rows):
            raise SystemExit("a window was empty")
        took.append(float(ms))
    return took


def held_ms(folder: Path, store: Path) -> float:
    """Return how long the lock is held that a recorder's tick may have to wait for."""
    with Kept.open(store) as kept:
        (row,) = kept.traces()
        blocks = [kept._reader.data(b.id) for b in kept._reader.blocks(row.id)]  # noqa: SLF001
    connection = for_writing(folder / "other" / DATABASE).connection
    # The log is folded into the file after the lock was given back.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    began = time.perf_counter()
    with transaction(connection):
        connection.executemany(
            "INSERT INTO trace_block (trace, tbl, lane, level, start, stop, rows, data)"
            " VALUES (1, 'op', 0, 0, 0, 0, 0, ?)",
            [(data,) for data in blocks],
        )
    took = time.perf_counter() - began
    connection.close()
    return took * 1000


def measure(folder: Path, events: int) -> list[Result]:
    """Measure one size."""
    trace, segments, (starts, ends) = made_up(events)
    rows = len(trace.host) + len(trace.devices[0].ops)
    store = folder / DATABASE
    began = time.perf_counter()
    kept = keep(
        store,
        trace,
        answer_of(trace),
        file=Path("/made/up.json.gz"),
        segments=[segments],
        steps=(starts, ends),
    )
    took = time.perf_counter() - began
    with Kept.open(store) as reader:
        size = reader.open_trace(kept).size
    steps = list(zip(starts.tolist(), ends.tolist(), strict=True))
    some = [steps[i * len(steps) // OPENINGS] for i in range(OPENINGS)]
    whole = [(int(starts[0]), int(ends[-1]))] * OPENINGS
    of_steps, of_whole = (openings_ms(store, kept, windows) for windows in (some, whole))
    label = f"{rows / 1e6:.1f} M events"
    return [
        Result(f"{label}, keep", took, "s"),
        Result(f"{label}, the lock is held", held_ms(folder, store), "ms"),
        Result(f"{label}, timeline", size / rows, "B/event"),
        Result(f"{label}, open a step, median", statistics.median(of_steps), "ms", BAR_MS),
        Result(f"{label}, open a step, worst", max(of_steps), "ms"),
        Result(f"{label}, open all, median", statistics.median(of_whole), "ms", BAR_MS),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[200_000, 2_000_000])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for events in options.events:
        with tempfile.TemporaryDirectory() as folder:
            results += measure(Path(folder), events)
    print_results(results, as_json=options.json)


if __name__ == "__main__":
    main()

"""What the store costs: values per second, bytes per value, and the time of a chart's query.

Run: python benchmarks/store.py [--hours 24] [--gpus 8] [--json]
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from results import Result, print_results

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.store import NewRun, Reader, Writer
from whyidle.monitor.store.schema import RAW, Level

SEED = 7
START_MS = 1_700_006_400_000
BATCH = 1000
REPEATS = 9
GPU_METRICS = metrics_of(Scope.GPU)


def busy_gpu(rng: random.Random, second: int) -> dict[Metric, float]:
    """Return all metrics of a training GPU, with the resolution that the driver gives them."""
    load = 0.9 + 0.1 * rng.random()
    kb = 1000
    return {
        m.GPU_UTILISATION: rng.randint(88, 100) / 100,
        m.GPU_MEMORY_USED: 61_203_283_968 + rng.randint(0, 40) * (2 << 20),
        m.GPU_MEMORY_TOTAL: 150_754_820_096,
        m.GPU_MEMORY_BANDWIDTH: rng.randint(35, 60) / 100,
        m.GPU_SM_ACTIVITY: load * 0.8,
        m.GPU_SM_OCCUPANCY: load * 0.3 + rng.random() * 0.02,
        m.GPU_TENSOR_ACTIVITY: load * 0.42 + rng.random() * 0.02,
        m.GPU_DRAM_ACTIVITY: load * 0.5 + rng.random() * 0.02,
        m.GPU_FP32_ACTIVITY: load * 0.06 + rng.random() * 0.01,
        m.GPU_FP16_ACTIVITY: load * 0.03 + rng.random() * 0.01,
        m.GPU_PCIE_RX: rng.randint(200_000, 3_000_000) * kb,
        m.GPU_PCIE_TX: rng.randint(100_000, 900_000) * kb,
        m.GPU_NVLINK_RX: rng.randint(20_000_000, 90_000_000) * 1024,
        m.GPU_NVLINK_TX: rng.randint(20_000_000, 90_000_000) * 1024,
        m.GPU_POWER: rng.randint(560_000, 699_000) / 1000,
        m.GPU_POWER_LIMIT: 700,
        m.GPU_ENERGY: (second * 640_000 + rng.randint(0, 600_000)) / 1000,
        m.GPU_TEMPERATURE: rng.randint(58, 66),
        m.GPU_MEMORY_TEMPERATURE: rng.randint(70, 78),
        m.GPU_SM_CLOCK: rng.choice((1980, 1965, 1950, 1935)),
        m.GPU_MEMORY_CLOCK: 2619,
        m.GPU_THROTTLED_POWER: rng.choice((0, 0, 0, rng.random() * 0.2)),
        m.GPU_THROTTLED_SYNC: 0,
        m.GPU_THROTTLED_HEAT: 0,
        m.GPU_THROTTLED_HARDWARE_HEAT: 0,
        m.GPU_THROTTLED_BRAKE: 0,
        m.GPU_PCIE_GENERATION: 5,
        m.GPU_PCIE_WIDTH: 16,
        m.GPU_XID: 0,
    }


def batches(gpus: list[int], seconds: int) -> Iterator[list[Tick]]:
    """Yield ticks at 1 Hz, a batch at a time, so that a day fits into memory."""
    rng = random.Random(SEED)
    for first in range(0, seconds, BATCH):
        yield [
            Tick(
                START_MS + second * 1000,
                {Scope.GPU: {gpu: Reading(busy_gpu(rng, second)) for gpu in gpus}},
            )
            for second in range(first, min(first + BATCH, seconds))
        ]


def begin(folder: Path, gpus: int) -> tuple[Writer, int, list[int]]:
    """Open a store with one run and its GPUs."""
    writer = Writer.open(folder / DATABASE, size_cap=4 << 30, now=lambda: START_MS / 1000)
    run = writer.begin_run(NewRun(label="benchmark", started_ms=START_MS, hz=1))
    return writer, run, [writer.add_gpu(run, idx=str(i)) for i in range(gpus)]


def fill(folder: Path, gpus: int, seconds: int) -> tuple[float, float, list[int]]:
    """Fill a store in bulk; returns the seconds for samples, for roll-ups, and the GPUs."""
    writer, run, ids = begin(folder, gpus)
    stored = rolled = 0.0
    for ticks in batches(ids, seconds):
        began = time.perf_counter()
        if not writer.append_many(run, ticks):
            raise SystemExit(writer.trouble)
        middle = time.perf_counter()
        writer.maintain(ticks[-1].ts_ms / 1000)
        stored += middle - began
        rolled += time.perf_counter() - middle
    began = time.perf_counter()
    writer.end_run(run, "done", 0)
    writer.close()
    return stored, rolled + time.perf_counter() - began, ids


def by_tick(folder: Path, gpus: int, ticks: int) -> tuple[float, float]:
    """Return the seconds that ``append`` takes for all ticks, and the worst one."""
    writer, run, ids = begin(folder, gpus)
    took = []
    for some in batches(ids, ticks):
        for tick in some:
            began = time.perf_counter()
            if not writer.append(run, tick):
                raise SystemExit(writer.trouble)
            took.append(time.perf_counter() - began)
            writer.maintain(tick.ts_ms / 1000)
    writer.close()
    return sum(took), max(took)


def table_bytes(path: Path, level: Level) -> int:
    """Return the bytes of the pages of one table."""
    connection = sqlite3.connect(path)
    try:
        query = "SELECT sum(pgsize) FROM dbstat WHERE name = ?"
        return int(connection.execute(query, (level.table(Scope.GPU),)).fetchone()[0])
    finally:
        connection.close()


def query_ms(path: Path, gpus: list[int], hours: float, seconds: int, metric: Metric) -> float:
    """Return the median of a chart's query, each by a reader that has just opened the file."""
    end = START_MS + seconds * 1000
    start = end - int(hours * 3_600_000)

    def ask() -> float:
        with Reader.open(path) as reader:
            began = time.perf_counter()
            found = reader.series(metric, gpus, start, end, 1000)
            took = time.perf_counter() - began
        if not all(0 < len(points) <= 1000 for points in found.values()):
            raise SystemExit("the query did not answer as asked")
        return took * 1000

    return median(ask)


def median(ask: Callable[[], float]) -> float:
    """Return the median of several answers, the first one left out."""
    ask()
    return statistics.median(ask() for _ in range(REPEATS))


def measure(folder: Path, hours: float, gpus: int) -> list[Result]:
    """Measure everything."""
    seconds = int(hours * 3600)
    values = seconds * gpus * len(GPU_METRICS)
    stored, rolled, ids = fill(folder / "bulk", gpus, seconds)
    path = folder / "bulk" / DATABASE
    ticks = min(seconds, 5000)
    each, worst = by_tick(folder / "ticks", gpus, ticks)
    per_second = ticks * gpus * len(GPU_METRICS) / each / 1e6
    span = f"{hours:g} h x {gpus} GPUs"
    first, last = GPU_METRICS[0], GPU_METRICS[-1]
    return [
        Result(
            "bulk, a commit per 1000 ticks", values / stored / 1e6, "M values/s", 2, at_least=True
        ),
        Result("append, a commit per tick", per_second, "M values/s", 2, at_least=True),
        Result("append, one tick", each / ticks * 1000, "ms"),
        Result("append, the worst tick", worst * 1000, "ms"),
        Result("roll-ups, share of all writing", rolled / (rolled + stored), "ratio"),
        Result("raw table", table_bytes(path, RAW) / values, "B/value", 6),
        Result("whole file, roll-ups included", path.stat().st_size / values, "B/value"),
        Result(f"query {span}, first column", query_ms(path, ids, hours, seconds, first), "ms", 20),
        Result(f"query {span}, last column", query_ms(path, ids, hours, seconds, last), "ms", 20),
        Result(
            "query 1 h x 1 GPU",
            query_ms(path, ids[:1], min(1, hours), seconds, first),
            "ms",
            20,
        ),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), options.hours, options.gpus)
    print_results(results, as_json=options.json)


if __name__ == "__main__":
    main()

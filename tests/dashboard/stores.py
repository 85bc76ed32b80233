"""Stores with made figures, for tests and for the benchmark: of any length, any number of GPUs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.core.reading import UNSUPPORTED, Reading, Tick
from whyidle.monitor.store import NewRun, Writer

GIB = 1 << 30
BATCH = 3600


@dataclass
class Made:
    """A recording that is being made, second by second."""

    writer: Writer
    run: int
    gpus: list[int]
    ts_ms: int

    def more(self, seconds: int) -> None:
        """Record so many more seconds."""
        while seconds > 0:
            ticks = [self._tick(self.ts_ms + i * 1000) for i in range(min(BATCH, seconds))]
            assert self.writer.append_many(self.run, ticks)
            self.ts_ms += len(ticks) * 1000
            # As a recorder does: sums are made of what is complete.
            self.writer.maintain(self.ts_ms / 1000)
            seconds -= len(ticks)

    def end(self) -> None:
        """End the recording, and let go of the file."""
        self.writer.end_run(self.run, "stopped by the user")
        self.writer.close()

    def _tick(self, ts_ms: int) -> Tick:
        gpus = {gpu: of_gpu(ts_ms, i) for i, gpu in enumerate(self.gpus)}
        job = Reading(of_job(ts_ms))
        own = Reading({m.SELF_CPU: 0.004, m.SELF_RSS: 40 << 20, m.SELF_TICK: 0.003})
        for scope, readings in ((Scope.GPU, gpus), (Scope.JOB, {self.run: job})):
            for reading in readings.values():
                say_why(scope, reading)
        rows = {Scope.JOB: {self.run: job}, Scope.MONITOR: {self.run: own}, Scope.GPU: gpus}
        return Tick(ts_ms, {scope: some for scope, some in rows.items() if some})


def make(path: Path, *, seconds: int, gpus: int = 0, end_ms: int | None = None, **run: Any) -> Made:
    """Begin a recording that ends now, or then, and may be gone on with."""
    end_ms = time.time_ns() // 1_000_000 if end_ms is None else end_ms
    writer = Writer.open(path)
    start_ms = end_ms - seconds * 1000
    info: Mapping[str, Any] = {
        "gpus": [str(i) for i in range(gpus)], "gpus_how": "the driver lists the job on them",
        "gpu_problem": None if gpus else "There is no NVIDIA driver library here.",
    }  # fmt: skip
    new = {"label": "made", "target_pid": 1, "script": "train.py", "framework": "torch 2.13.0"}
    number = writer.begin_run(NewRun(started_ms=start_ms, hz=1.0, info=info, **{**new, **run}))
    cards = [
        writer.add_gpu(number, idx=str(i), uuid=f"GPU-{i}", name="NVIDIA H200") for i in range(gpus)
    ]
    made = Made(writer, number, cards, start_ms)
    made.more(seconds)
    return made


def say_why(scope: Scope, reading: Reading) -> None:
    """Give each number that is not known its reason, as a recorder does."""
    for metric in metrics_of(scope):
        if metric not in reading.values:
            reading.unknown.setdefault(metric, UNSUPPORTED)


def of_gpu(ts_ms: int, place: int) -> Reading:
    """Return the figures of a GPU at a moment: it waits for most of each minute."""
    wave = 0.5 + 0.5 * math.sin(ts_ms / 60_000 + place)
    values: dict[Metric, float] = {
        m.GPU_UTILISATION: 0.05 + 0.3 * wave,
        m.GPU_SM_ACTIVITY: 0.03 + 0.2 * wave,
        m.GPU_TENSOR_ACTIVITY: 0.01 + 0.1 * wave,
        m.GPU_DRAM_ACTIVITY: 0.02 + 0.1 * wave,
        m.GPU_MEMORY_USED: (40 + 8 * wave) * GIB,
        m.GPU_MEMORY_TOTAL: 141 * GIB,
        m.GPU_POWER: 150 + 100 * wave,
        m.GPU_POWER_LIMIT: 700.0,
        m.GPU_PCIE_RX: 2e9 * wave,
        m.GPU_PCIE_TX: 3e8 * wave,
        m.GPU_PCIE_GENERATION: 5,
        m.GPU_PCIE_WIDTH: 16,
    }
    return Reading(values, {m.GPU_NVLINK_RX: UNSUPPORTED, m.GPU_NVLINK_TX: UNSUPPORTED})


def of_job(ts_ms: int) -> dict[Metric, float]:
    """Return the figures of the job at a moment."""
    wave = 0.5 + 0.5 * math.sin(ts_ms / 45_000)
    return {
        m.JOB_CPU: 1.0 + wave,
        m.JOB_MAIN_THREAD: 0.6,
        m.JOB_RSS: 5.0 * GIB,
        m.JOB_STEPS: 20.0,
        m.JOB_STEP_P50: 0.05 + 0.01 * wave,
        m.JOB_STEP_P95: 0.07,
        m.JOB_SAMPLES: 640.0,
        m.JOB_LOADER_WAIT: 0.5 + 0.2 * wave,
        m.JOB_SYNC_WAIT: 0.02,
        m.JOB_GC_PAUSE: 0.03,
        m.JOB_COMPILE: 0.0,
    }

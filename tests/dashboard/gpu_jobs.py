"""A job on made GPUs: ranks with the agent inside, memory that grows, links, events, a lost GPU."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.dashboard.stores import GIB, of_gpu, of_job, say_why
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.core.reading import LOST, NO_JAX, Reading, Tick
from whyidle.monitor.store import NewRun, Writer

LEAK = 8 << 20


@dataclass
class Job:
    """A recording of a job, second by second."""

    writer: Writer
    run: int
    gpus: list[int]
    ranks: list[int]
    pairs: list[int]
    ts_ms: int
    # From when on the last GPU no values.
    lost_ms: int | None = None
    began_ms: int = field(default=0)

    def more(self, seconds: int) -> None:
        """Record so many more seconds."""
        ticks = [self._tick(self.ts_ms + i * 1000) for i in range(seconds)]
        assert self.writer.append_many(self.run, ticks)
        self.ts_ms += seconds * 1000

    def end(self, reason: str = "job ended: exit code 0") -> None:
        """End the recording."""
        self.writer.end_run(self.run, reason)
        self.writer.close()

    def _tick(self, ts_ms: int) -> Tick:
        second = (ts_ms - self.began_ms) // 1000
        gpus = {gpu: _gpu(ts_ms, place) for place, gpu in enumerate(self.gpus)}
        if self.lost_ms is not None and ts_ms >= self.lost_ms:
            gpus[self.gpus[-1]] = Reading({}, dict.fromkeys(_gpu(ts_ms, 0).values, LOST))
        own = Reading({
            m.SELF_CPU: 0.004, m.SELF_RSS: 40 << 20, m.SELF_TICK: 0.003, m.SELF_NVML: 0.001,
            m.SELF_MISSED: 0,
        })  # fmt: skip
        host = Reading({m.HOST_MEMORY_TOTAL: 512 * GIB, m.HOST_MEMORY_AVAILABLE: 300 * GIB})
        job = {self.run: Reading(of_job(ts_ms))}
        ranks = {rank: _rank(second, i) for i, rank in enumerate(self.ranks)}
        for scope, readings in ((Scope.GPU, gpus), (Scope.JOB, job), (Scope.PROCESS, ranks)):
            for reading in readings.values():
                say_why(scope, reading)
        return Tick(ts_ms, {
            Scope.GPU: gpus,
            Scope.JOB: job,
            Scope.PROCESS: ranks,
            Scope.GPU_PROCESS: {
                pair: Reading({m.PROCESS_GPU_MEMORY: 40 * GIB, m.PROCESS_SM_SHARE: 0.1})
                for pair in self.pairs
            },
            Scope.HOST: {self.run: host},
            Scope.MONITOR: {self.run: own},
        })  # fmt: skip


def job(
    path: Path,
    *,
    gpus: int = 2,
    others: int = 0,
    seconds: int = 300,
    lost: int | None = None,
    ago: int = 0,
    end_ms: int | None = None,
    compiles: bool = True,
    **run: Any,
) -> Job:
    """Begin a recording up to now, or ``ago`` seconds before, or up to a moment.

    ``lost`` seconds before its end the last GPU falls off.
    """
    now_ms = time.time_ns() // 1_000_000 - ago * 1000 if end_ms is None else end_ms
    start_ms = now_ms - seconds * 1000
    writer = Writer.open(path)
    entries = [_entry(i) for i in range(gpus)]
    info = {
        "gpus": [str(i) for i in range(gpus)], "gpus_how": "the driver lists the job on them",
        "gpu_problem": None, "not_entered": None, "processes": entries,
    }  # fmt: skip
    new: dict[str, Any] = {
        "label": "made", "target_pid": 100, "script": "train.py", "framework": "torch 2.13.0",
        "user": "ada", "command": "torchrun train.py",
    }  # fmt: skip
    number = writer.begin_run(NewRun(started_ms=start_ms, hz=1.0, info=info, **{**new, **run}))
    cards = [
        writer.add_gpu(
            number, idx=str(i), uuid=f"GPU-{i}", name="NVIDIA H200",
            info={"pcie_generation_max": 5, "pcie_width_max": 16},
        )
        for i in range(gpus + others)
    ]  # fmt: skip
    ranks = [
        writer.add_process(number, pid=100 + i, start_ticks=1000 + i, name="train.py", rank=i)
        for i in range(gpus)
    ]
    pairs = [writer.add_gpu_process(cards[i], ranks[i]) for i in range(gpus)]
    made = Job(writer, number, cards, ranks, pairs, start_ms, began_ms=start_ms)
    if lost is not None:
        made.lost_ms = now_ms - lost * 1000
        writer.event(
            number, "gpu_lost", f"GPU {len(cards) - 1} is lost.", severity="high",
            ts_ms=made.lost_ms, scope=Scope.GPU, subject=cards[-1],
        )  # fmt: skip
    if compiles and ranks:
        text = "Compiled train_step in 2.1 s, which no cache had."
        writer.event(
            number, "compile", text, ts_ms=start_ms + 20_000, scope=Scope.PROCESS, subject=ranks[0]
        )
    made.more(seconds)
    return made


def _entry(place: int) -> dict[str, Any]:
    facts = {"torch": {"version": "2.13.0", "backend": "cuda", "model": "GPT"}}
    counted = {"steps": 100, "source": "optimizer", "step_p50_ns": 50_000_000,
               "step_p95_ns": 70_000_000, "stretches": [], "totals": {}}  # fmt: skip
    return {
        "pid": 100 + place, "start_ticks": 1000 + place, "rank": place, "method": "run",
        "inside": True, "stops_ms": [], "refused": None, "next_step": None, "frameworks": facts,
        "counted": counted,
    }  # fmt: skip


def _gpu(ts_ms: int, place: int) -> Reading:
    reading = of_gpu(ts_ms, place)
    wave = 0.5 + 0.5 * math.sin(ts_ms / 30_000)
    links = {m.GPU_NVLINK_RX: 4e10 * wave, m.GPU_NVLINK_TX: 4e10 * wave}
    return Reading({**reading.values, **links, m.GPU_PCIE_GENERATION: 4}, {})


def _rank(second: int, place: int) -> Reading:
    used = (12 + place) * GIB + second * LEAK
    values: dict[Metric, float] = {
        m.PROCESS_POOL_USED: used,
        m.PROCESS_POOL_PEAK: used + 3 * GIB,
        m.PROCESS_POOL_RESERVED: used + 4 * GIB,
        m.PROCESS_SYNCS: 20.0,
        m.PROCESS_SYNC_WAIT: 0.02,
        m.PROCESS_STEPS: 20.0,
        m.PROCESS_READBACK: 8e4,
    }
    return Reading(values, {m.PROCESS_LIVE_BYTES: NO_JAX, m.PROCESS_DEVICE_PUTS: NO_JAX})

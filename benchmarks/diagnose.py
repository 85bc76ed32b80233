"""What a diagnosis costs: of a stored day on 8 GPUs, and of a trace beyond reading it.

The day has every metric of 8 GPUs, of the job, of one process with an agent and of the machine at
1 Hz, stacks every ten seconds, and the facts of a framework. The trace is the large XPlane file of
``traces.py`` (60 MB). Bars: a second, and 0.2 s.

Run: .venv/bin/python benchmarks/diagnose.py [--hours 24] [--gpus 8] [--json]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from results import Result, print_results
from store import SEED, START_MS, busy_gpu
from traces import generated_xplane

from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.signals.opening import of_answer, of_run
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

BAR_RUN_S, BAR_TRACE_S = 1.0, 0.2
BATCH = 1000
REPEATS = 5
STACKS_EVERY = 10
OTHERS = (Scope.JOB, Scope.PROCESS, Scope.HOST)


def fill(path: Path, seconds: int, gpus: int) -> None:
    """Record a day of a job."""
    entry = {
        "pid": 7, "start_ticks": 70, "rank": 0, "method": "run", "inside": True, "stops_ms": [],
        "refused": None, "next_step": None, "frameworks": {}, "counted": None,
    }  # fmt: skip
    writer = Writer.open(path, size_cap=8 << 30, now=lambda: START_MS / 1000)
    info = {"processes": [entry], "gpus": [str(i) for i in range(gpus)]}
    run = writer.begin_run(NewRun(label="day", started_ms=START_MS, hz=1, info=info))
    cards = [writer.add_gpu(run, idx=str(i), name="NVIDIA H200") for i in range(gpus)]
    own = writer.add_process(run, pid=7, start_ticks=70)
    subjects = {Scope.JOB: run, Scope.PROCESS: own, Scope.HOST: run}
    chance = random.Random(SEED)
    for first in range(0, seconds, BATCH):
        ticks = [
            Tick(
                START_MS + second * 1000,
                {Scope.GPU: {gpu: Reading(busy_gpu(chance, second)) for gpu in cards}}
                | {scope: {subjects[scope]: Reading(_any(scope, chance))} for scope in OTHERS},
            )
            for second in range(first, min(first + BATCH, seconds))
        ]
        writer.append_many(run, ticks)
        writer.maintain(ticks[-1].ts_ms / 1000)
        for tick in ticks[::STACKS_EVERY]:
            lines = [
                {"file": "/home/u/train.py", "line": n, "function": "train", "share": 0.05}
                for n in range(20)
            ]
            data = {"samples": 100, "seconds": 10.0, "lines": lines, "leaves": lines}
            writer.event(
                run, "stacks", "-", ts_ms=tick.ts_ms, scope=Scope.PROCESS, subject=own, data=data
            )
    facts = {"probe": "torch", "facts": {"backend": "cuda", "dtypes": {"float32": 10**9}}}
    writer.event(
        run, "framework", "-", ts_ms=START_MS, scope=Scope.PROCESS, subject=own, data=facts
    )
    writer.end_run(run, "done", 0)
    writer.close()


def _any(scope: Scope, chance: random.Random) -> dict[Metric, float]:
    """Return every metric of a scope, of a job that is well."""
    return {
        metric: (0.01 if metric.unit == "ratio" else 100.0) * (0.9 + 0.2 * chance.random())
        for metric in metrics_of(scope)
    }


def median(work: Callable[[], object]) -> float:
    """Return the median of several times, the first one left out."""
    work()
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def measure(folder: Path, hours: float, gpus: int) -> list[Result]:
    """Measure both."""
    path = folder / DATABASE
    fill(path, int(hours * 3600), gpus)
    run = median(lambda: as_json(diagnose(of_run(path, "last"))))
    answer = contract(analyse(generated_xplane(folder)))
    trace = median(lambda: as_json(diagnose(of_answer(answer, "trace"))))
    return [
        Result(f"a run of {hours:g} h x {gpus} GPUs", run, "s", BAR_RUN_S),
        Result("a trace of 60 MB, beyond reading it", trace, "s", BAR_TRACE_S),
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

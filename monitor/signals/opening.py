"""Windows over what there is: a trace file, a recording, the last minutes of one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import TraceJson
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.runs.estimate import BACKENDS, Running, running
from whyidle.monitor.signals.from_store import Span, counted_then, recorded
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import Reader

# The newest ones stand for the rest.
MOST_TRACES: Final = 8


def of_answer(answer: TraceJson, name: str) -> Window:
    """Return the window over one trace file, by its answer."""
    return Window(name, "file", (Traced(answer, name),))


def of_run(store: Path, ref: str, seconds: float | None = None) -> Window:
    """Return the window over a recording; only its last seconds if wanted."""
    with Reader.open(store) as reader:
        run = reader.find(ref)
        span = Span.of(reader, run, seconds)
        now_ms = time.time_ns() // 1_000_000
        job = recorded(reader, run, span, now_ms)
        traces = []
        for each in reader.newest_traces(run.id, MOST_TRACES):
            answer, taken = each["answer"], each["taken"]
            if answer is not None:
                # So long the job stood still for it.
                ns = None if taken is None else taken.get("held_ns")
                held_s = None if ns is None else ns / 1e9
                age_s = max(0.0, (now_ms - each["ts_ms"]) / 1e3)
                then = counted_then(reader, run, taken)
                traces.append(Traced(answer, f"trace {each['id']}", age_s, held_s, then))
    return Window(f"run {run.id}", "run", tuple(traces), job, estimated(job), not run.is_recording)


def estimated(job: Recorded) -> Running:
    """Return where the time of a recording went by its counters alone, on average."""
    means = {metric: mean for metric, mean in job.means.items() if metric.scope is Scope.JOB}
    reading = Reading(means, {k: why for k, why in job.unknown.items() if k.scope is Scope.JOB})
    gpus = [Reading(dict(gpu.means)) for gpu in job.gpus if gpu.owned]
    backend = job.fact("backend")
    device = BACKENDS.get(backend) if isinstance(backend, str) else None
    if device is None and any(m.GPU_UTILISATION in gpu.values for gpu in gpus):
        device = "gpu"
    return running(reading, gpus, device)

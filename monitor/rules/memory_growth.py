"""Memory grows with every step.

## What it sees
The job's resident memory, or JAX's live arrays (Julia: live objects), grow steadily through the
recording.

## Why it costs
Full memory ends the job.

## How to fix
A summed loss keeps the graph of its step with all activations: use `loss.detach()`, or
`loss.item()` every N steps. Drop lists of arrays once they are written.

## When it is wrong
Caches and replay buffers fill up and stop. Memory-mapped data count as resident.

## Documents
D2, causes (memory that grows until transfers wait). Its code for Julia was run on a CPU; its code
with CUDA.jl was not run here.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_WHILE_S, LITTLE, MOSTLY
from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.memory import room_on_host
from whyidle.monitor.signals.recorded import Trend
from whyidle.monitor.signals.user_lines import kept

# Slower than 1 MB/s takes a day for 86 GB.
LEAST_PER_S: Final = 1e6
# The second half rose much like the first: a cache that fills up rises less and less, and loading
# a model rises once. Steps of a busy machine come at an uneven pace.
LEVEL, BURST = 0.25, 4.0
# A second foretells a minute at most: pools and caches still fill up for some time.
FORESEEN: Final = 60
# Memory that is full within a day ends the job.
DAY_S: Final = 86_400
# What frameworks count of a GPU lies in its memory; the rest lies in that of the machine.
_ON_DEVICE: Final = (m.PROCESS_POOL_USED, m.PROCESS_LIVE_BYTES)
BY: Final = (*_ON_DEVICE, m.PROCESS_HEAP, m.JOB_RSS)


def detect(window: Window) -> Verdict:
    """Judge how the memory goes."""
    trends = {metric: window.job.trends[metric] for metric in BY if metric in window.job.trends}
    if m.PROCESS_HEAP in trends:
        # What is alive is known: the rest of what the process holds is garbage, and room for it.
        trends.pop(m.JOB_RSS, None)
    if not trends:
        return window.lacks(Need.RECORDING if window.kind == "file" else Need.LONGER)
    if window.job.seconds < A_WHILE_S:
        return window.lacks(Need.LONGER)
    if window.shares.get(Slice.IDLE_COMPILE, 0.0) > MOSTLY:
        return window.lacks(Need.LONGER, "it compiles, which takes memory")
    growing = next(((k, t) for k, t in trends.items() if grows(t)), None)
    if growing is None:
        return None
    metric, trend = growing
    left = left_s(window, metric, trend)
    if left is not None and left > FORESEEN * window.job.seconds:
        return None
    measure, pace = partial(window.job.measure, source=metric.source), window.steps_per_s
    measures = {
        f"growth of {metric.words}": measure(trend.per_s, "bytes_per_second"),
        "grown": measure(trend.last - trend.first, "bytes"),
        "growth": None if pace is None else measure(trend.per_s / pace.value, "bytes/step"),
        "until the memory is full": None if left is None else measure(left, "s"),
    }
    return Found(
        gain=None,
        evidence=Evidence.known(measures),
        where=kept(window.job),
        severity=Severity.HIGH if left is not None and left < DAY_S else Severity.MEDIUM,
    )


def grows(trend: Trend) -> bool:
    """Tell whether a level rises to the end, by as much as matters."""
    grown = trend.last - trend.first
    return (
        trend.per_s > LEAST_PER_S and grown > LITTLE * trend.last and LEVEL < trend.holding < BURST
    )


def left_s(window: Window, metric: Metric, trend: Trend) -> float | None:
    """Return how long it can go on, by the memory that it grows in; ``None``: not known."""
    rooms = room_on_host(window, trend.last)
    if metric in _ON_DEVICE and window.device == "gpu":
        # What is free on each GPU of the job, which others may hold a part of.
        pairs = [(g.means.get(m.GPU_MEMORY_TOTAL), g.last(m.GPU_MEMORY_USED)) for g in window.gpus]
        rooms = [total - used for total, used in pairs if total is not None and used is not None]
    return min(rooms) / trend.per_s if rooms and trend.per_s > 0 else None


rule = Rule(
    title="Memory grows with every step",
    documents=("D2",),
    fixes={
        "pytorch": Fix(
            "Keep numbers, not tensors that hold on to their graph.",
            "total = total + loss.detach()",
        ),
        "jax": Fix(
            "Keep the reported numbers, not the arrays they come from.",
            "history.append(jnp.mean(outputs))",
        ),
        "flux": Fix(
            "Keep numbers, not arrays. Drop the references, then call GC.gc() and CUDA.reclaim().",
            "push!(history, Float64(sum(outputs) / length(outputs)))",
        ),
    },
    kind=Kind.MEMORY,
)

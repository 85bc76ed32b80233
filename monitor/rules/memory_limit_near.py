"""Memory is close to the container's limit, or the limit has already killed a process.

## What it sees
The cgroup's memory without file pages nears its tightest limit, or processes were killed for
memory.

## Why it costs
The next allocation kills a process. For a loader worker, PyTorch's error does not say why.

## How to fix
Use arrays instead of lists of objects, and a smaller `prefetch_factor`: batches of workers lie in
/dev/shm, which counts too.

## When it is wrong
Constant memory may stay at 99% for days. Growth is `memory_growth`, waiting is `memory_stalls`.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.rules import Fix, Framework, Kind, Need, Rule, Severity, Verdict, Window, both
from whyidle.monitor.rules.memory_growth import grows


def detect(window: Window) -> Verdict:
    """Judge what is left below the limit."""
    job = window.job
    limit, used = job.mean(m.JOB_MEMORY_LIMIT), job.last(m.JOB_MEMORY_USED)
    kills, trend = job.last(m.JOB_OOM_KILLS), job.trends.get(m.JOB_RSS)
    if limit is None and kills is None:
        return window.lacks(Need.RECORDING, job.unknown.get(m.JOB_MEMORY_LIMIT, ""))
    is_near = limit is not None and used is not None and used >= NEARLY_ALL * limit.value
    # It grows, or waits for memory already: two rules know more of that.
    waits = job.means.get(m.JOB_MEMORY_STALL, 0.0) >= Severity.MEDIUM.least
    is_told = waits or (trend is not None and grows(trend))
    if not kills and (not is_near or is_told):
        return None
    measures = {"processes killed": job.measure(kills, "count", "cgroup") if kills else None}
    if limit is not None and used is not None:
        measures["memory in use"] = job.measure(used, "bytes", "cgroup")
        measures["memory limit"] = limit
    return Found(
        None,
        Evidence.known(measures),
        # Without a limit it was the machine's memory, and somebody else's process perhaps.
        severity=Severity.HIGH if kills and limit is not None else Severity.LOW,
        title="The kernel killed processes of the job for lack of memory" if kills else None,
        fixes=_cures("64G" if limit is None else with_room(limit.value)),
    )


def with_room(memory: float) -> str:
    """Return how much it needs with a quarter to spare, as limits are written."""
    return f"{max(1, round(1.25 * memory / (1 << 30)))}G"


def raised(size: str) -> str:
    """Say how a limit is raised."""
    return (
        f"Raise the memory limit to {size}. That is --mem={size} for sbatch,"
        f" --memory={size.lower()} for Docker, resources.limits.memory: {size}i in Kubernetes."
    )


def _cures(size: str) -> dict[Framework, Fix]:
    return both(f"{raised(size)} Or start fewer loader workers.")


rule = Rule(
    title="Memory is nearly at the limit of the container", fixes=_cures("64G"), kind=Kind.MEMORY
)

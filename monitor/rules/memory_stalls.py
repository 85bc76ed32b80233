"""The job waits for main memory.

## What it sees
How long tasks of the job's cgroup waited for memory, as the kernel counts it (PSI): for pages that
come back from swap or from a file that had just been dropped, and for memory to be taken back.
Where that is not counted (cgroup v1), the job's pages in swap, its page faults that read the disk,
and what the machine reads back from swap.

## Why it costs
Above `memory.high`, near `memory.max`, or where the machine itself is full, a thread that touches
memory sleeps until some has been found. A page from swap takes thousands of times as long as one in
memory. The main thread launches nothing meanwhile, and workers load nothing.

## How to fix
Raise the limit that bites, or hold less: fewer loader workers (each has its own copy of what it
changes), a smaller `prefetch_factor`, data that is read and not kept. `memory.high` slows a job and
never ends it: set it well above what the job holds. Switch swap off for the job rather than train
out of it.

## When it is wrong
Tasks of the cgroup that are not the job's count, too; the lower end of the gain is the time in
which all of them waited at once. Swap that others use, or that holds what the job never touches
again, costs it nothing and is not reported.

## Documents
None of the five mentions it: beyond the documents.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import (
    LEAST_LOST,
    Evidence,
    Fix,
    Found,
    Framework,
    Gain,
    Need,
    Severity,
    Verdict,
)
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.window import Window

# Shorter waits are no fault: "medium" in the contract.
LEAST: Final = LEAST_LOST[Severity.MEDIUM]
# A page fault that reads a disk takes 0.1 ms and more: so many take 1% of the time.
LEAST_FAULTS: Final = 100.0
# Less than the pages of so many faults is somebody else's swap.
PAGE: Final = 4096
# Whose limit it is, where the use has come near it.
NEAR: Final = 0.9
GIB: Final = 1 << 30
BOTH: Final[tuple[Framework, ...]] = ("pytorch", "jax")
SHOWN: Final[dict[str, Metric]] = {
    "tasks wait for memory": m.JOB_MEMORY_STALL,
    "all tasks wait for memory": m.JOB_MEMORY_STALL_ALL,
    "memory in use": m.JOB_MEMORY_USED,
    "slowed from": m.JOB_MEMORY_HIGH,
    "memory limit": m.JOB_MEMORY_LIMIT,
    "the job's memory in swap": m.JOB_SWAP,
    "page faults that read the disk": m.JOB_MAJOR_FAULTS,
}


def detect(window: Window) -> Verdict:
    """Judge the waits for memory."""
    stall, faults = window.job.mean(m.JOB_MEMORY_STALL), window.job.mean(m.JOB_MAJOR_FAULTS)
    if stall is None and faults is None:
        return window.lacks(Need.RECORDING)
    if stall is None:
        return _found(window, None) if _reads_swap(window) else None
    if stall.value < LEAST:
        return None
    compute = window.share(Slice.COMPUTE) if window.device == "gpu" else None
    most = min(stall.value, 1.0 if compute is None else 1 - compute.value)
    everybody = window.job.means.get(m.JOB_MEMORY_STALL_ALL, 0.0)
    return _found(window, Gain.between(min(most, everybody), most))


def _reads_swap(window: Window) -> bool:
    """Tell whether the job itself has pages read back from swap, and often."""
    means = window.job.means
    faults = means.get(m.JOB_MAJOR_FAULTS, 0.0)
    read = PAGE * LEAST_FAULTS
    is_read = means.get(m.HOST_SWAPPED_IN, 0.0) >= read and means.get(m.JOB_SWAP, 0.0) >= read
    return faults >= LEAST_FAULTS and is_read


def _found(window: Window, gain: Gain | None) -> Found:
    job = window.job
    used = job.means.get(m.JOB_MEMORY_USED, 0.0)
    bites = next(
        (
            x
            for x in (m.JOB_MEMORY_HIGH, m.JOB_MEMORY_LIMIT)
            if x in job.means and used >= NEAR * job.means[x]
        ),
        None,
    )
    found = {name: job.mean(metric) for name, metric in SHOWN.items()}
    return Found(
        gain,
        tuple(Evidence.of(name, measure) for name, measure in found.items() if measure),
        # Nothing says how long such a fault takes.
        severity=None if gain else Severity.MEDIUM,
        title=TITLES[bites],
        fixes=dict.fromkeys(BOTH, _fix(bites, used)),
    )


def _fix(bites: Metric | None, used: float) -> Fix:
    less = "Or hold less: fewer loader workers, a smaller prefetch_factor."
    if bites is None:
        return Fix(f"Move a job to another machine, or switch swap off (swapoff -a). {less}")
    # What it holds with a quarter to spare.
    size = f"{max(1, round(1.25 * used / GIB))}G"
    if bites is m.JOB_MEMORY_HIGH:
        return Fix(f"Raise memory.high of its cgroup: systemd MemoryHigh={size}, or max. {less}")
    return Fix(
        f"Raise the limit: --mem={size} for sbatch, --memory={size.lower()} for Docker,"
        f" resources.limits.memory: {size}i in Kubernetes. {less}"
    )


TITLES: Final[dict[Metric | None, str]] = {
    m.JOB_MEMORY_HIGH: "The job waits for memory: it is slowed above its memory.high",
    m.JOB_MEMORY_LIMIT: "The job waits for memory: it is at its limit",
    None: "The job waits for memory: the machine has too little",
}

rule = Rule(
    title="The job waits for main memory",
    documents=("beyond the documents",),
    fixes=dict.fromkeys(BOTH, _fix(None, 0.0)),
    detect=detect,
)

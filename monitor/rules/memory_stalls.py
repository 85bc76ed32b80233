"""The job waits for main memory.

## What it sees
The time in which tasks of the job's cgroup wait for memory (PSI), or for
swap and page faults that read the disk (cgroup v1).

## Why it costs
Above `memory.high`, near `memory.max` or on a full machine, a thread that touches memory sleeps.

## How to fix
Raise the limit that is reached. `memory.high` slows a job and never ends it: set it well above the
job's use.

## When it is wrong
Other tasks of the cgroup count too; the lower end of the gain is the time in which all waited.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import math
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.rules import Need, Rule, Severity, Verdict, Window, both
from whyidle.monitor.rules.memory_limit_near import raised, with_room
from whyidle.monitor.signals.memory import PAGE

# A page fault that reads a disk takes 0.1 ms and more: so many take 1% of the time.
LEAST_FAULTS: Final = 100.0
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
    job, means = window.job, window.job.means
    stall, faults = job.mean(m.JOB_MEMORY_STALL), job.mean(m.JOB_MAJOR_FAULTS)
    if stall is None and faults is None:
        return window.lacks(Need.RECORDING)
    if stall is not None:
        # Shorter waits are no fault.
        if stall.value < Severity.MEDIUM.least:
            return None
        most = min(stall.value, window.not_computing)
        gain = Gain.between(min(most, means.get(m.JOB_MEMORY_STALL_ALL, 0.0)), most)
    else:
        # The job itself has pages read back from swap, and often: less than the pages of so many
        # faults is somebody else's swap. Nothing says how long such a fault takes.
        swapped = min(means.get(m.HOST_SWAPPED_IN, 0.0), means.get(m.JOB_SWAP, 0.0))
        if means.get(m.JOB_MAJOR_FAULTS, 0.0) < LEAST_FAULTS or swapped < PAGE * LEAST_FAULTS:
            return None
        gain = None
    used = means.get(m.JOB_MEMORY_USED, 0.0)
    limits = (m.JOB_MEMORY_HIGH, m.JOB_MEMORY_LIMIT)
    bites = next((x for x in limits if used >= NEARLY_ALL * means.get(x, math.inf)), None)
    fix = _OF_MACHINE
    if bites is m.JOB_MEMORY_HIGH:
        fix = f"Raise memory.high of its cgroup: MemoryHigh={with_room(used)} in systemd, or max."
    elif bites is not None:
        fix = raised(with_room(used))
    return Found(
        gain,
        Evidence.known({name: job.mean(metric) for name, metric in SHOWN.items()}),
        severity=None if gain else Severity.MEDIUM,
        title=TITLES[bites],
        fixes=both(f"{fix} {_LESS}"),
    )


_OF_MACHINE: Final = "Move a job to another machine, or turn swap off (swapoff -a)."


_LESS: Final = "Or hold less: fewer loader workers, a smaller prefetch_factor."


TITLES: Final[dict[Metric | None, str]] = {
    m.JOB_MEMORY_HIGH: "The job waits for memory: it is above its memory.high",
    m.JOB_MEMORY_LIMIT: "The job waits for memory: it is at its limit",
    None: "The job waits for memory: the machine has too little",
}

rule = Rule(title="The job waits for main memory", fixes=both(f"{_OF_MACHINE} {_LESS}"))

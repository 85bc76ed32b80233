"""The account of the cores: who runs on those that the job may use.

The main thread's account says what it does; this one says who else takes the cores meanwhile:
other threads of its process, the processes that it started, other programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.runs.stacks import summed
from whyidle.monitor.signals.recorded import Recorded

# Less than this is left on cores that are full, as sampled once a second.
FULL: Final = NEARLY_ALL
# Neighbours that take a quarter of the cores, with nothing left, take them from threads that
# compute for a main thread, which itself waits for those and not for a core.
LEAST_TAKEN: Final = 0.25


class Runner(StrEnum):
    """Who runs, by its name in the JSON contract."""

    MAIN_THREAD = "main_thread"
    THREADS = "other_threads"
    HELPERS = "helper_processes"
    OTHERS = "other_programs"
    FREE = "free"


RUNNERS: Final = {
    Runner.MAIN_THREAD: "the main thread",
    Runner.THREADS: "its process's other threads",
    Runner.HELPERS: "processes that it started",
    Runner.OTHERS: "other programs",
    Runner.FREE: "nobody",
}


@dataclass(frozen=True, slots=True)
class CoreAccount:
    """How many cores each takes on average; together they are all that the job may use."""

    cores: float
    runs: Mapping[Runner, float]
    # The user's lines in helper processes, by the cores that run there, most first.
    lines: tuple[SourceLine, ...]

    @property
    def is_full(self) -> bool:
        """Whether hardly anything is left."""
        return self.runs[Runner.FREE] <= (1 - FULL) * self.cores

    @property
    def is_taken(self) -> bool:
        """Whether other programs have a good part of them, full or not."""
        return self.runs[Runner.OTHERS] >= LEAST_TAKEN * self.cores

    @property
    def is_crowded(self) -> bool:
        """Whether other programs take what the job would: at least the part that is not left."""
        return self.is_full and self.runs[Runner.OTHERS] > (1 - FULL) * self.cores


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores that the job's threads may run on, by their masks: all, where none is narrower."""

    there: float
    # How many of them worked on average, for anybody.
    busy: float

    @property
    def is_full(self) -> bool:
        """Whether hardly anything is left."""
        return self.busy >= FULL * self.there


def allowed(job: Recorded) -> Cores | None:
    """Return the cores on which it may run; ``None``: not measured."""
    there, busy = job.means.get(m.JOB_CORES_ALLOWED), job.means.get(m.JOB_CORES_BUSY)
    if there is None or busy is None:
        there, busy = job.means.get(m.HOST_CORES), job.means.get(m.HOST_CPU)
    return None if there is None or busy is None else Cores(there, busy * there)


def wanted_by(job: Recorded) -> Measure | None:
    """Return how many of its threads run or wait for a core, on average."""
    used, waiting = job.mean(m.JOB_CPU), job.mean(m.JOB_WAITING_THREADS)
    if used is None or waiting is None:
        return None
    return job.measure(used.value + waiting.value, "count", "procfs")


def busy_processes(job: Recorded) -> int:
    """Return of how many processes its threads compute."""
    return round(job.means.get(m.JOB_BUSY_PROCESSES, 0.0))


def may_use(job: Recorded) -> Measure | None:
    """Return the cores that the job may use: by masks, by the limit of its cgroup, or all."""
    metrics = (m.HOST_CORES, m.JOB_CORES_ALLOWED, m.JOB_CPU_LIMIT)
    known = [found for metric in metrics if (found := job.mean(metric)) is not None]
    return min(known, key=lambda found: found.value, default=None)


def cores_of(job: Recorded) -> CoreAccount | None:
    """Return the account; ``None``: the cores, or who uses them, were not measured."""
    known, there = may_use(job), allowed(job)
    used, process = job.means.get(m.JOB_CPU), job.means.get(m.PROCESS_CPU)
    main = job.means.get(m.JOB_MAIN_THREAD)
    if known is None or used is None or process is None or main is None:
        return None
    main = min(main, process)
    busy = 0.0 if there is None else there.busy
    left = cores = known.value
    runs = {}
    # Each is measured on its own: what does not fit any more is somebody's error.
    for runner, share in (
        (Runner.MAIN_THREAD, main),
        (Runner.THREADS, process - main),
        (Runner.HELPERS, max(0.0, used - process)),
        (Runner.OTHERS, max(0.0, busy - used)),
        (Runner.FREE, left),
    ):
        runs[runner] = min(left, share)
        left -= runs[runner]
    lines = summed(
        ((line.file, line.line, line.function), line.share * helper.cores)
        for helper in job.helpers
        for line in helper.lines
    )
    return CoreAccount(cores, runs, tuple(SourceLine(*at, n) for at, n in lines.items()))

"""Looks at the host time and again, and has what it saw last ready for every scrape.

A scrape asks neither the driver nor the store, so one that hangs holds nobody up. Whatever fails
costs its own part of a page, which then says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.errors import NoGpu, Problem
from whyidle.monitor.export import kubelet, recordings
from whyidle.monitor.export.gpus import GpuTime
from whyidle.monitor.export.job_time import JobTime
from whyidle.monitor.export.jobs import Job, Jobs
from whyidle.monitor.export.kubelet import Allocations
from whyidle.monitor.export.recordings import Recording
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.gpm import SHORTEST_INTERVAL
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.ownership import is_alive, unclaimed

RECORDINGS_EVERY_SECONDS: Final = 15.0
PODS_EVERY_SECONDS: Final = 15.0
# A driver that is not there may be loaded later.
DRIVER_EVERY_SECONDS: Final = 30.0
# A look may wait for NVML this share of its period, then it goes on without.
NVML_SHARE: Final = 0.7
# Of a longer pause (the host slept) nothing is known.
LONGEST_GAP_PERIODS: Final = 5.0
ONCE_SECONDS: Final = 2.0
# The parts that may fail each for itself.
PARTS = ("driver", "gpus", "jobs", "recordings", "pods", "otlp", "unscraped", "backfill")
DRIVER, GPUS, JOBS, RECORDINGS, PODS, OTLP, UNSCRAPED, BACKFILL = PARTS


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen last."""

    at: float
    took: float = 0.0
    facts: tuple[GpuFacts, ...] = ()
    readings: Mapping[str, GpuReading] = field(default_factory=dict)
    jobs: tuple[Job, ...] = ()
    strangers: Mapping[str, int] = field(default_factory=dict)
    # Who the kubelet has given each GPU to.
    allocated: Allocations = field(default_factory=dict)


class Collector:
    """Three threads: for GPUs and processes, for recordings, for the pods of a kubelet."""

    def __init__(
        self,
        store: Path,
        say: Callable[[str], None],
        hz: float = 1.0,
        fs: ProcFs | None = None,
    ) -> None:
        self.period = 1.0 / hz
        self.last = Look(time.monotonic())
        self.gpu_times: dict[str, GpuTime] = {}
        self.job_times: dict[ProcessKey, JobTime] = {}
        self.recordings: Mapping[ProcessKey, Recording] = {}
        self.allocations: Allocations = {}
        # Why a part does not work at the moment.
        self.problems: dict[str, str] = {}
        self._store = store
        self._say = say
        self._jobs = Jobs(fs)
        self._probe: GpuProbe | None = None
        self._driver_at = float("-inf")
        self._looked_at: float | None = None
        self._closing = threading.Event()

    def start(self) -> None:
        """Look from now on, until closed."""
        for name, every, step in (
            ("whyidle-looks", self.period, self.look),
            ("whyidle-recordings", RECORDINGS_EVERY_SECONDS, self.read_recordings),
            ("whyidle-pods", PODS_EVERY_SECONDS, self.read_pods),
        ):
            threading.Thread(target=self._loop, args=(every, step), name=name, daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closing.set()
        if self._probe is not None:
            self._probe.close()

    def once(self) -> None:
        """Look twice, as rates and activity need two samples."""
        self.read_recordings()
        self.read_pods()
        self.look(ONCE_SECONDS)
        if self.last.readings:
            time.sleep(2 * SHORTEST_INTERVAL)
            self.look(ONCE_SECONDS)

    def open_driver(self) -> None:
        """Connect to the driver; raises ``NoGpu``."""
        probe = GpuProbe()
        probe.open()
        for gpu in probe.gpus:
            gpu.add_lifetime()
        self._probe = probe

    def look(self, limit: float | None = None) -> None:
        """Look at every GPU and at who holds them. Never raises."""
        began = time.monotonic()
        readings: Mapping[str, GpuReading] = {}
        jobs, strangers = self.last.jobs, self.last.strangers
        allocated: Allocations = {}
        self.attempt(DRIVER, self._connect)
        facts = tuple(gpu.facts for gpu in self._probe.gpus) if self._probe else ()
        gap = 0.0 if self._looked_at is None else began - self._looked_at
        seconds = gap if gap <= LONGEST_GAP_PERIODS * self.period else 0.0
        with _Part(self, GPUS):
            readings = self._read(facts, limit or NVML_SHARE * self.period)
            for index, read in readings.items():
                self.gpu_times.setdefault(index, GpuTime()).take(read, seconds)
        with _Part(self, JOBS):
            known = {
                member: key for key, each in self.recordings.items() for member in each.members
            }
            known |= {key: key for key in self.recordings}
            allocated = kubelet.of_gpus(facts, self.allocations)
            jobs = tuple(self._jobs.find(facts, readings, known, began, allocated))
            strangers = dict(self._jobs.strangers)
            self._count(readings, jobs, seconds)
        self._looked_at = began
        took = time.monotonic() - began
        self.last = Look(began, took, facts, readings, jobs, strangers, allocated)

    def _connect(self) -> None:
        now = time.monotonic()
        if self._probe is None and now - self._driver_at >= DRIVER_EVERY_SECONDS:
            self._driver_at = now
            self.open_driver()
        elif self._probe is None and DRIVER in self.problems:
            raise NoGpu(self.problems[DRIVER])

    def _read(self, facts: tuple[GpuFacts, ...], limit: float) -> Mapping[str, GpuReading]:
        if self._probe is None:
            return {}
        readings, fs = self._probe.read(limit), self._jobs.fs
        # One process may be on all GPUs.
        alive = cache(partial(is_alive, fs))
        for gpu in facts:
            read = readings[gpu.index]
            _keep_what_was_not_due(read, self.last.readings.get(gpu.index))
            held, why = unclaimed(gpu, read, facts, fs, alive)
            read.reading.unknown.pop(m.GPU_MEMORY_UNCLAIMED, None)
            read.reading.put(m.GPU_MEMORY_UNCLAIMED, held, why)
        for event in self._probe.events():
            if event.kind == "xid":
                self.gpu_times.setdefault(event.index, GpuTime()).xids += 1
        return readings

    def _count(
        self, readings: Mapping[str, GpuReading], jobs: tuple[Job, ...], seconds: float
    ) -> None:
        """Add the time since the last look to the sums of each job."""
        times = {job.key: self.job_times.get(job.key) or JobTime() for job in jobs}
        for job in jobs:
            times[job.key].take(job, self.recordings.get(job.key), readings, seconds)
        self.job_times = times

    def read_recordings(self) -> None:
        """Read what recordings say now. Never raises."""
        failed: list[Exception] = []
        with _Part(self, RECORDINGS):
            found = recordings.read(self._store, failed.append)
            self.recordings = {each.key: each for each in found}
            if failed:
                raise failed[0]

    def read_pods(self) -> None:
        """Ask the kubelet, where there is one. Never raises."""
        found: Allocations = {}
        with _Part(self, PODS):
            found = kubelet.read()
        self.allocations = found

    def caught(self, part: str, error: Exception | None) -> None:
        """Note that a part works, or why it does not; say it once."""
        if error is None:
            if self.problems.pop(part, None) is not None:
                self._say(f"{part}: works again.")
            return
        what = error.what if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
        next_step = error.next_step if isinstance(error, Problem) else ""
        before, self.problems[part] = self.problems.get(part), what
        if before != what:
            self._say(f"{part}: {what} {next_step}".rstrip())

    def attempt(self, part: str, step: Callable[[], None]) -> None:
        """Do a step of a part; why it fails is noted. Never raises."""
        with _Part(self, part):
            step()

    def _loop(self, every: float, step: Callable[[], None]) -> None:
        due = time.monotonic()
        while not self._closing.is_set():
            step()
            due = max(due + every, time.monotonic())
            self._closing.wait(due - time.monotonic())


def _keep_what_was_not_due(read: GpuReading, before: GpuReading | None) -> None:
    """Keep the last values of what is read only now and then: a series has no holes."""
    if before is not None:
        for metric, value in before.reading.values.items():
            if metric not in read.reading.values and metric not in read.reading.unknown:
                read.reading.values[metric] = value


class _Part:
    """Keeps a defect, or a problem, to its own part."""

    def __init__(self, collector: Collector, part: str) -> None:
        self._collector, self._part = collector, part

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        self._collector.caught(self._part, error)
        return True

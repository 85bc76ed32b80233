"""What became of the time of a job's GPUs while it was watched: sums by cause, over all looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.core.slices import Slice
from whyidle.monitor.export import families as f
from whyidle.monitor.export.exposition import Family
from whyidle.monitor.export.gpus import busy_share
from whyidle.monitor.export.jobs import Job
from whyidle.monitor.export.recordings import Recording
from whyidle.monitor.sources.gpu import GpuReading

IDLE: Final = tuple(part for part in Slice if part.idle)


@dataclass(slots=True)
class JobTime:
    """One job."""

    seconds: float = 0.0
    idle: dict[Slice, float] = field(default_factory=lambda: dict.fromkeys(IDLE, 0.0))

    def take(
        self,
        job: Job,
        recorded: Recording | None,
        readings: Mapping[str, GpuReading],
        seconds: float,
    ) -> None:
        """Take in the time since the last look: by the account of its recording, if it has one.

        The counters alone know no causes. Of a GPU that says nothing, nothing is known.
        """
        if recorded is not None and recorded.idle is not None:
            devices = len(job.gpus) or len(recorded.gpus) or 1
            self.seconds += seconds * devices
            for part, share in recorded.idle.items():
                self.idle[part] += seconds * devices * share
            return
        for index in job.gpus:
            busy = None if index not in readings else busy_share(readings[index])
            if busy is not None:
                self.seconds += seconds
                self.idle[Slice.IDLE_UNKNOWN] += seconds * (1.0 - busy)


def families(times: Mapping[str, JobTime]) -> list[Family]:
    """Return the sums, by job_key."""
    watched, idle = f.JOB_SECONDS.family(), f.JOB_IDLE.family()
    for name, time in times.items():
        watched.add(time.seconds, {"job_key": name})
        for part, seconds in time.idle.items():
            idle.add(seconds, {"job_key": name, "cause": part.removeprefix("idle_")})
    return [watched, idle]

"""The page that a scrape gets: all that the collector saw last, with a bound on its series."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from whyidle.monitor.export import dcgm, gpus, job_time, recordings
from whyidle.monitor.export import families as f
from whyidle.monitor.export.collector import PARTS, Collector, Look
from whyidle.monitor.export.exposition import Family, Labels, page
from whyidle.monitor.export.jobs import Job
from whyidle.monitor.export.recordings import Recording
from whyidle.monitor.processes.procfs import own_memory

# A host with more jobs at a time is none that trains: those with the most device memory are shown.
MOST_JOBS: Final = 64


@dataclass(frozen=True, slots=True)
class Shown:
    """By which names and labels."""

    host: str
    host_label: dcgm.HostLabel = "Hostname"
    dcgm_names: bool = True


def scrape(collector: Collector, shown: Shown) -> bytes:
    """Return the page of this moment."""
    return page(families(collector, shown))


def families(collector: Collector, shown: Shown | None = None) -> list[Family]:
    """Return all that is known at this moment; dcgm-exporter's names only where shown."""
    look, of_key, job_times = collector.last, collector.recordings, collector.job_times
    jobs = {job.name: job for job in look.jobs[:MOST_JOBS]}
    recorded = {
        name: found for name, job in jobs.items() if (found := of_key.get(job.key)) is not None
    }
    times = {name: job_times[job.key] for name, job in jobs.items() if job.key in job_times}
    labels = {gpu.index: {"gpu": gpu.index, "UUID": gpu.uuid or ""} for gpu in look.facts}
    parts: list[Family] = []
    if shown is not None and shown.dcgm_names:
        named = dcgm.all_labels(look.facts, shown.host, shown.host_label, look.allocated)
        parts += dcgm.families((named[i], look.readings[i]) for i in named if i in look.readings)
    parts += gpus.families(labels, look.readings, dict(collector.gpu_times))
    parts += _strangers(labels, look)
    parts += _allocated(labels, look)
    parts += _of_jobs(jobs, recorded, labels)
    parts += job_time.families(times)
    parts += recordings.families(recorded)
    parts += _of_ourselves(collector, look)
    return parts


def _strangers(labels: Mapping[str, Labels], look: Look) -> Iterable[Family]:
    family = f.GPU_UNMATCHED.family()
    for index, number in look.strangers.items():
        if index in labels:
            family.add(float(number), labels[index])
    return (family,)


def _allocated(labels: Mapping[str, Labels], look: Look) -> Iterable[Family]:
    family = f.GPU_ALLOCATED.family()
    for index, allocations in look.allocated.items():
        for each in allocations:
            family.add(1.0, {**labels[index], **each._asdict()})
    return (family,)


def _of_jobs(
    jobs: Mapping[str, Job], recorded: Mapping[str, Recording], gpu_labels: Mapping[str, Labels]
) -> Iterable[Family]:
    info, memory = f.JOB_INFO.family(), f.JOB_GPU.family()
    for name, job in jobs.items():
        info.add(1.0, _who(name, job, recorded.get(name)))
        for index, held in job.gpus.items():
            if index in gpu_labels:
                memory.add(held, {"job_key": name, **gpu_labels[index]})
    return info, memory


def _who(name: str, job: Job, recorded: Recording | None) -> Labels:
    who = job.identity
    known = recorded.run if recorded is not None else None
    rank = who.rank if who is not None else None
    container = job.owner.container or (who.container if who else known and known.container)
    return {
        "job_key": name,
        "pid": str(job.key.pid),
        "user": (who.user if who else known and known.user) or "",
        "slurm_job": job.owner.slurm_job,
        "slurm_step": job.owner.slurm_step,
        "rank": "" if rank is None else str(rank.rank),
        "pod": job.owner.pod,
        "namespace": job.owner.namespace,
        "container": container or "",
        "framework": (who.framework if who else None) or (known and known.framework) or "",
        "run": "" if known is None else str(known.id),
    }


def _of_ourselves(collector: Collector, look: Look) -> Iterable[Family]:
    build, problem, cpu, rss, tick, age, left_out = (
        name.family() for name in (f.BUILD, f.PROBLEM, f.CPU, f.RSS, f.TICK, f.AGE, f.LEFT_OUT)
    )
    build.add(1.0, {"version": version_here()})
    for part in PARTS:
        problem.add(float(part in collector.problems), {"part": part})
    cpu.add(time.process_time(), {})
    rss.add(own_memory(), {})
    tick.add(look.took, {})
    age.add(time.monotonic() - look.at, {})
    left_out.add(float(max(0, len(look.jobs) - MOST_JOBS)), {})
    return build, problem, cpu, rss, tick, age, left_out


def version_here() -> str:
    """Return the version of whyidle."""
    try:
        return version("whyidle")
    except PackageNotFoundError:
        return ""

"""The jobs of this machine: processes on a GPU, and those that have a framework loaded."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import PurePath

from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.errors import NoGpu
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.namespace import pids_match
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.processes.procfs import TICKS_PER_SECOND, ProcFs, Stat
from whyidle.monitor.processes.target import Target
from whyidle.monitor.sources.gpu import innermost
from whyidle.monitor.sources.gpus import GpuProbe

NVML_SECONDS = 3.0
# How long an agent has to answer, and how long all that lie there and do not may keep us.
AGENT_SECONDS, AGENTS_SECONDS = 0.2, 1.0
# Reading another program's maps costs it a moment: only these can have a framework inside.
_HOSTS_OF_FRAMEWORKS = ("python", "pypy", "julia", "torchrun", "jupyter", "ipython", "uv", "ray")


@dataclass(frozen=True, slots=True)
class Job:
    """One process that may be watched."""

    identity: Identity
    seconds: float
    cpu_share: float
    rss: int
    gpus: dict[str, Reading] = field(default_factory=dict)
    # Why it cannot be watched at all.
    refused: str | None = None
    # The way in that attaching would take, and why none leads inside.
    attach: str | None = None
    not_inside: str | None = None


@dataclass(frozen=True, slots=True)
class Jobs:
    """What runs here, and what is not known of it."""

    jobs: list[Job]
    gpu_problem: str | None
    strangers: list[tuple[str, int]]


def find_jobs(fs: ProcFs | None = None) -> Jobs:
    """Return the jobs, those with the most device memory first."""
    fs = fs or ProcFs()
    on_gpu, strangers, problem = _gpu_processes(fs)
    jobs = []
    patience = AGENTS_SECONDS
    for pid in fs.pids():
        stat = fs.stat(pid)
        if stat is None or stat.has_ended or pid == os.getpid():
            continue
        if pid not in on_gpu and not _may_host(fs, pid, stat):
            continue
        target = Target(ProcessKey(pid, stat.start_ticks), fs)
        identity = target.identity
        if identity is not None and (identity.frameworks or pid in on_gpu):
            began = time.monotonic()
            patient = min(AGENT_SECONDS, patience)
            jobs.append(_job(target, identity, stat, on_gpu.get(pid, {}), patient))
            patience -= time.monotonic() - began
    jobs.sort(key=lambda j: (-_device_memory(j), -j.rss))
    return Jobs(jobs, problem, strangers)


def _job(
    target: Target, identity: Identity, stat: Stat, gpus: dict[str, Reading], patient: float
) -> Job:
    fs = target.fs
    up = (fs.text("uptime") or "0").split()[0]
    seconds = max(0.0, float(up) - stat.start_ticks / TICKS_PER_SECOND)
    cpu = stat.cpu_ticks / TICKS_PER_SECOND
    foreign = os.geteuid() not in {0, target.uid}
    rungs = () if foreign else ladder.rungs(target, patient)
    way = ladder.best(rungs).name if rungs else None
    barred = next((r.refused for r in reversed(rungs) if r.refused is not None), None)
    return Job(
        identity=identity,
        seconds=seconds,
        cpu_share=cpu / seconds if seconds > 0 else 0.0,
        rss=stat.rss,
        gpus=gpus,
        refused=f"belongs to {identity.user}" if foreign else None,
        attach=way,
        not_inside=barred.what if barred is not None and way == OUTSIDE else None,
    )


def _may_host(fs: ProcFs, pid: int, stat: Stat) -> bool:
    exe = PurePath(fs.link(f"{pid}/exe") or "").name
    return stat.name.startswith(_HOSTS_OF_FRAMEWORKS) or exe.startswith(_HOSTS_OF_FRAMEWORKS)


def _device_memory(job: Job) -> float:
    return sum(r.get(m.PROCESS_GPU_MEMORY) or 1.0 for r in job.gpus.values())


def _gpu_processes(
    fs: ProcFs,
) -> tuple[dict[int, dict[str, Reading]], list[tuple[str, int]], str | None]:
    """Return by pid what it has on each GPU, the pids not visible here, and what went wrong."""
    probe = GpuProbe()
    try:
        probe.open(NVML_SECONDS)
    except NoGpu as problem:
        return {}, [], problem.what
    found: dict[int, dict[str, Reading]] = {}
    strangers: list[tuple[str, int]] = []
    for index, result in probe.read(NVML_SECONDS).items():
        for pid, reading in result.processes.items():
            if fs.stat(pid) is not None and pids_match(fs, pid):
                found.setdefault(pid, {})[index] = reading
            else:
                strangers.append((index, pid))
    probe.close()
    facts = [g.facts for g in probe.gpus]
    for pid, held in found.items():
        found[pid] = {i: r for i, r in held.items() if i in innermost(held, facts)}
    return found, strangers, None

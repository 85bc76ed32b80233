"""The jobs of this machine: processes on a GPU, and those that have a framework loaded."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import MappingProxyType

from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.errors import NoGpu, UsageProblem
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.namespace import pids_match
from whyidle.monitor.processes.process import Identity, ProcessKey, describe
from whyidle.monitor.processes.procfs import TICKS_PER_SECOND, ProcFs, Stat, above_each
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.worker import (
    FIRST_PROCESS,
    KEEPERS,
    at_or_below,
    check_is_no_keeper,
    chosen,
)
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
    # The share of the time in which kernels ran on the busiest of its GPUs, whoever's they are.
    busy: float | None = None


@dataclass(frozen=True, slots=True)
class Jobs:
    """What runs here, and what is not known of it."""

    jobs: list[Job]
    gpu_problem: str | None
    strangers: list[tuple[str, int]]


def find_jobs(
    fs: ProcFs | None = None,
    probe: GpuProbe | None = None,
    known: Mapping[ProcessKey, Job] = MappingProxyType({}),
) -> Jobs:
    """Return the jobs, those with the most device memory first.

    Who looks time and again has a probe that is open, and asks nobody twice for the ways in.
    """
    fs = fs or ProcFs()
    on_gpu, busy, strangers, problem = _gpu_processes(fs, probe)
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
            gpus = on_gpu.get(pid, {})
            job = _job(target, identity, stat, gpus, patient=patient, before=known.get(target.key))
            at_work = [share for index in gpus if (share := busy.get(index)) is not None]
            jobs.append(replace(job, busy=max(at_work, default=None)))
            patience -= time.monotonic() - began
    jobs.sort(key=lambda j: (-_device_memory(j), -j.rss))
    return Jobs(jobs, problem, strangers)


def check_is_a_job(target: Target) -> None:
    """Raise where neither a process nor what it started can be a job: a wrong number, mostly."""
    fs = target.fs
    stats = fs.stats()
    above = above_each(stats)
    below = [p for p in at_or_below(target.key, stats, above) if not stats[p].has_ended]
    who = target.identity
    if who is None or who.has_framework:
        return
    if who.name in KEEPERS:
        check_is_no_keeper(target.key, stats)
    if target.pid == FIRST_PROCESS:
        # A container's first process may have started one job: then that is meant.
        known = (describe(pid, fs) for pid in below)
        chosen(target.key, [each for each in known if each and each.has_framework], above, "attach")
    # Python may load a framework later; whose files are not readable may have one.
    if any(_may_host(fs, pid, stats[pid]) or fs.link(f"{pid}/exe") is None for pid in below):
        return
    on_gpu, *_ = _gpu_processes(fs)
    if not on_gpu.keys() & set(below):
        raise UsageProblem(
            f"Process {target.pid} ({who.name}) is not a training job: neither it nor what it"
            " started runs Python or Julia or uses a GPU.",
            f"List the jobs: monitor ps    Watch it anyway: monitor attach {target.pid} --observe",
        )


def _job(
    target: Target,
    identity: Identity,
    stat: Stat,
    gpus: dict[str, Reading],
    *,
    patient: float,
    before: Job | None,
) -> Job:
    fs = target.fs
    up = (fs.text("uptime") or "0").split()[0]
    seconds = max(0.0, float(up) - stat.start_ticks / TICKS_PER_SECOND)
    cpu = stat.cpu_ticks / TICKS_PER_SECOND
    foreign = os.geteuid() not in {0, target.uid}
    if before is not None and before.identity.frameworks == identity.frameworks:
        way, not_inside = before.attach, before.not_inside
    else:
        rungs = () if foreign else ladder.rungs(target, patient)
        way = ladder.best(rungs).name if rungs else None
        barred = next((r.refused for r in reversed(rungs) if r.refused is not None), None)
        not_inside = barred.what if barred is not None and way == OUTSIDE else None
    return Job(
        identity=identity,
        seconds=seconds,
        cpu_share=cpu / seconds if seconds > 0 else 0.0,
        rss=stat.rss,
        gpus=gpus,
        refused=f"belongs to {identity.user}" if foreign else None,
        attach=way,
        not_inside=not_inside,
    )


def _may_host(fs: ProcFs, pid: int, stat: Stat) -> bool:
    exe = PurePath(fs.link(f"{pid}/exe") or "").name
    return stat.name.startswith(_HOSTS_OF_FRAMEWORKS) or exe.startswith(_HOSTS_OF_FRAMEWORKS)


def _device_memory(job: Job) -> float:
    return sum(r.get(m.PROCESS_GPU_MEMORY) or 1.0 for r in job.gpus.values())


def _gpu_processes(
    fs: ProcFs, held_open: GpuProbe | None = None
) -> tuple[
    dict[int, dict[str, Reading]], dict[str, float | None], list[tuple[str, int]], str | None
]:
    """Return by pid what it has on each GPU, how busy these are, who is not visible, a problem."""
    probe = held_open or GpuProbe()
    try:
        if not probe.gpus:
            probe.open(NVML_SECONDS)
    except NoGpu as problem:
        return {}, {}, [], problem.what
    found: dict[int, dict[str, Reading]] = {}
    busy: dict[str, float | None] = {}
    strangers: list[tuple[str, int]] = []
    for index, result in probe.read(NVML_SECONDS).items():
        busy[index] = result.reading.get(m.GPU_UTILISATION)
        for pid, reading in result.processes.items():
            if fs.stat(pid) is not None and pids_match(fs, pid):
                found.setdefault(pid, {})[index] = reading
            else:
                strangers.append((index, pid))
    facts = [g.facts for g in probe.gpus]
    if held_open is None:
        probe.close()
    for pid, held in found.items():
        found[pid] = {i: r for i, r in held.items() if i in innermost(held, facts)}
    return found, busy, strangers, None

"""Plain lines, for pipes and logs: one a tick, and the page at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.core.reading import LOST, by_reason
from whyidle.monitor.processes.process import Identity
from whyidle.monitor.recording.faults import FINDING
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import brief, inside, numbers, pace, running
from whyidle.monitor.render.escape import printable
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.store import Event, Gpu, Run


def who(identity: Identity | Run | None) -> str:
    """Return the job in one line: script, framework, Python, user, container."""
    if identity is None:
        return "the job"
    parts = [
        identity.framework,
        f"Python {identity.python}" if identity.python else None,
        f"user {identity.user}" if identity.user else None,
        identity.container,
    ]
    about = ", ".join(p for p in parts if p)
    name = identity.script or "the job"
    return printable(f"{name} ({about})" if about else name)


def tick(snapshot: Snapshot, *, everything: bool) -> str:
    """Return one tick as one line."""
    now = snapshot.estimate()
    parts = [f"{numbers.duration(snapshot.elapsed):>7}{stopped(snapshot)}"]
    # The pace and the causes first: what a person looks for.
    parts += [said for said in (pace.briefly(snapshot), running.briefly(now)) if said]
    for facts in snapshot.shown(everything=everything):
        reading = snapshot.gpus[facts.index].reading
        parts.append(
            f"gpu{facts.index} {numbers.of(reading, m.GPU_UTILISATION)}"
            f" sm {numbers.of(reading, m.GPU_SM_ACTIVITY)}"
            f" mem {numbers.of(reading, m.GPU_MEMORY_USED)}"
            f" {numbers.of(reading, m.GPU_POWER)}"
        )
    job = snapshot.job
    parts.append(
        f"job cpu {numbers.of(job, m.JOB_CPU)} cores, rss {numbers.of(job, m.JOB_RSS)},"
        f" read {numbers.of(job, m.JOB_DISK_READ)}, {numbers.of(job, m.JOB_PROCESSES)} proc"
    )
    parts.append(f"host cpu {numbers.of(snapshot.host, m.HOST_CPU)}")
    if line := inside.top_line(snapshot):
        parts.append(f"at {line}")
    if reads := inside.read_line(snapshot):
        parts.append(reads)
    return " | ".join(parts)


def stopped(snapshot: Snapshot) -> str:
    """Return that the job is stopped, or its main process alone; else nothing."""
    if snapshot.stopped:
        return " STOPPED"
    return " main process STOPPED" if snapshot.main_stopped else ""


class JobEvent(NamedTuple):
    """What happened, apart from the numbers, and whether it asks for attention."""

    text: str
    alarming: bool = True

    @property
    def marked(self) -> str:
        """The text behind a mark that says how much it matters."""
        return f"{'!' if self.alarming else '·'} {self.text}"


def news(snapshot: Snapshot) -> list[JobEvent]:
    """Return what happened at this tick."""
    return [
        *(JobEvent(e.text) for e in snapshot.events),
        *(JobEvent(printable(e.text), e.severity != "info") for e in snapshot.happened),
        *map(JobEvent, snapshot.notes),
    ]


def summary(told: RunSummary) -> str:
    """Return the page at the end of a recording."""
    run = told.run
    label = f" ({printable(run.label)})" if run.label else ""
    watched = (
        f"{numbers.duration(told.seconds)} watched, {_ticks(told.ticks)}, pid {run.target_pid}"
    )
    lines = [f"Run {run.id}{label}: {who(run)}", f"  {watched}; {_ending(run)}"]
    lines += [_gpu_line(told, gpu) for gpu in told.job_gpus()]
    if told.gpu_problem:
        lines.append(f"  GPU      unknown: {_briefly(told.gpu_problem)}")
    lines += [*pace.page(told), _job_line(told), *inside.page(told)]
    lines += [_host_line(told), _own_line(told)]
    said = "\n".join(lines)
    told_of = Counter(printable(e.text) for e in _alarming(told))
    for text, n in told_of.items():
        if text not in said:
            lines.append(f"  event    {text}{f' ({n} times)' if n > 1 else ''}")
    if told.more_events:
        lines.append(f"  event    {told.more_events} more were recorded and are not read here")
    lines += [f"  unknown  {text}" for text in unknown_lines(told)]
    if told.defects:
        where = ", ".join(f"{name} {count}" for name, count in told.defects.items())
        lines.append(f"  defects  of whyidle itself, caught: {where}; see monitor doctor")
    if told.trouble:
        lines.append(f"  store    {told.trouble}")
    lines += brief.page(told)
    lines.append(f"  Look again with: monitor runs {run.id}")
    return "\n".join(lines)


def _alarming(told: RunSummary) -> Iterator[Event]:
    """Yield what asks for attention; what was found has lines of its own."""
    yield from (e for e in told.events if e.severity != "info" and e.kind != FINDING)


def _ending(run: Run) -> str:
    if run.ended_ms is None:
        return "still recording"
    # The reasons of today name it already.
    known = run.exit_code is None or ": " in (run.end_reason or "")
    return f"{run.end_reason}{'' if known else f', exit code {run.exit_code}'}"


def _ticks(count: int) -> str:
    return "1 tick" if count == 1 else f"{count} ticks"


def _briefly(problem: str) -> str:
    """Return why no GPU was read, without what follows from it: the header has said it in full."""
    cause = re.split(r", so nothing|: nothing", problem)[0].rstrip(".")
    no_driver = cause.startswith(("There is no NVIDIA driver", "The NVIDIA driver is not loaded"))
    return "no NVIDIA driver here" if no_driver else cause


def _mean(told: RunSummary, metric: Metric, subject: int) -> str:
    found = told.of(metric, subject)
    return numbers.show(found.mean if found else None, metric.unit)


def _most(told: RunSummary, metric: Metric, subject: int) -> str:
    found = told.of(metric, subject)
    return numbers.show(found.most if found else None, metric.unit)


def _gpu_line(told: RunSummary, gpu: Gpu) -> str:
    return (
        f"  GPU {gpu.idx:<4} utilisation {_mean(told, m.GPU_UTILISATION, gpu.id)},"
        f" SM {_mean(told, m.GPU_SM_ACTIVITY, gpu.id)},"
        f" tensor {_mean(told, m.GPU_TENSOR_ACTIVITY, gpu.id)},"
        f" memory at most {_most(told, m.GPU_MEMORY_USED, gpu.id)}"
        f" of {_most(told, m.GPU_MEMORY_TOTAL, gpu.id)},"
        f" {_mean(told, m.GPU_POWER, gpu.id)},"
        f" {_most(told, m.GPU_ENERGY, gpu.id)} ({printable(gpu.name or '?')})"
        f"{', then LOST' if told.why_not(m.GPU_UTILISATION, gpu.id) == LOST else ''}"
    )


def _job_line(told: RunSummary) -> str:
    run = told.run.id
    return (
        f"  job      cpu {_mean(told, m.JOB_CPU, run)} cores"
        f" (busiest main thread {_mean(told, m.JOB_MAIN_THREAD, run)}),"
        f" memory at most {_most(told, m.JOB_RSS, run)},"
        f" {_counted(told, m.JOB_PROCESSES, 'process', 'processes')},"
        f" {_counted(told, m.JOB_THREADS, 'thread', 'threads')},"
        f" disk read {_mean(told, m.JOB_DISK_READ, run)}"
    )


def _counted(told: RunSummary, metric: Metric, one: str, several: str) -> str:
    count = _most(told, metric, told.run.id)
    return f"{count} {one if count == '1' else several}"


def _host_line(told: RunSummary) -> str:
    run = told.run.id
    cores = told.of(m.HOST_CORES, run)
    return (
        f"  machine  cpu {_mean(told, m.HOST_CPU, run)}"
        f" of {numbers.show(cores.most if cores else None, 'count')} cores,"
        f" waiting for I/O {_mean(told, m.HOST_IOWAIT, run)},"
        f" network in {_mean(told, m.HOST_NET_RX, run)}"
    )


def _own_line(told: RunSummary) -> str:
    run = told.run.id
    cpu = told.of(m.SELF_CPU, run)
    nvml = f" NVML {_mean(told, m.SELF_NVML, run)} a tick," if told.gpus else ""
    return (
        f"  monitor  cpu {numbers.show(cpu.mean if cpu else None, 'ratio')} of a core,"
        f" memory {_most(told, m.SELF_RSS, run)},{nvml}"
        f" {_most(told, m.SELF_MISSED, run)} ticks missed"
    )


def unknown_lines(told: RunSummary) -> list[str]:
    """Return which GPU and job metrics never had a value, by reason."""
    subjects = [(Scope.GPU, g.id) for g in told.job_gpus()] + [(Scope.JOB, told.run.id)]
    return by_reason(
        (metric, reason)
        for scope, subject in subjects
        for metric in metrics_of(scope)
        if told.of(metric, subject) is None and (reason := told.why_not(metric, subject))
    )

"""Plain lines for pipes and logs: one per tick, and the summary at the end."""

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
from whyidle.monitor.render import finding_lines, inside, live_budget, numbers, pace
from whyidle.monitor.render.escape import printable
from whyidle.monitor.runs.energy import energy_of
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.store import Gpu, Run

# Of what needs attention so many lines stand at the end of a recording.
MOST_ALARMS = 2


def who(identity: Identity | Run | None) -> str:
    """Return a job in one line: script, framework, Python, user, container."""
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
    # Pace and causes come first: they are what people look for.
    parts += [said for said in (pace.briefly(snapshot), live_budget.briefly(now)) if said]
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
    """Return a mark if the job, or just its main process, is stopped; else nothing."""
    if snapshot.stopped:
        return " STOPPED"
    return " main process STOPPED" if snapshot.main_stopped else ""


class NewsLine(NamedTuple):
    """Something that happened, and whether it needs attention."""

    text: str
    alarming: bool = True

    @property
    def marked(self) -> str:
        """The text after a mark that shows whether it matters."""
        return f"{'!' if self.alarming else '·'} {self.text}"


def news(snapshot: Snapshot) -> list[NewsLine]:
    """Return what happened at this tick."""
    return [
        *(NewsLine(e.text) for e in snapshot.events),
        *(NewsLine(printable(e.text), e.severity != "info") for e in snapshot.happened),
        *map(NewsLine, snapshot.notes),
    ]


def summary_page(summary: RunSummary) -> str:
    """Return the text summary of a recording."""
    run = summary.run
    label = f" ({printable(run.label)})" if run.label else ""
    seconds = numbers.duration(summary.seconds)
    watched = f"{seconds} watched, {_ticks(summary.ticks)}, pid {run.target_pid}"
    lines = [f"Run {run.id}{label}: {who(run)}", f"  {watched}; {ending(run)}"]
    lines += [_gpu_line(summary, gpu) for gpu in summary.job_gpus()]
    if summary.gpu_problem:
        lines.append(f"  GPU      unknown: {briefly(summary.gpu_problem)}")
    lines += [*pace.page(summary), _job_line(summary), *inside.page(summary)]
    lines += [*_energy_line(summary), _host_line(summary), _own_line(summary)]
    page = "\n".join(lines)
    lines += [f"  event    {text}" for text in _alarms(summary) if text not in page]
    if summary.more_events:
        lines.append(f"  event    {summary.more_events} more were recorded and are not shown here")
    lines += [f"  unknown  {text}" for text in unknown_lines(summary)]
    lines += [*_ours(summary), *finding_lines.page(summary)]
    lines.append(f"  Look again with: monitor runs {run.id}")
    return "\n".join(lines)


def troubles(summary: RunSummary) -> list[str]:
    """Return what a person has to know of besides the findings: alarms, and what failed of ours."""
    alarms = list(_alarms(summary))
    shown = [f"  event    {text}" for text in alarms[:MOST_ALARMS]]
    if more := alarms[MOST_ALARMS:]:
        shown.append(f"  event    {len(more)} more: monitor runs {summary.run.id}")
    return [*shown, *_ours(summary)]


def _alarms(summary: RunSummary) -> Iterator[str]:
    """Yield the events that need attention, each once; findings have lines of their own."""
    alarming = (e for e in summary.events if e.severity != "info" and e.kind != FINDING)
    for text, n in Counter(printable(e.text) for e in alarming).items():
        yield f"{text}{f' ({n} times)' if n > 1 else ''}"


def _ours(summary: RunSummary) -> Iterator[str]:
    if summary.defects:
        where = ", ".join(f"{name} {count}" for name, count in summary.defects.items())
        yield f"  defects  of whyidle itself, caught: {where}; see monitor doctor"
    if summary.trouble:
        yield f"  store    {summary.trouble}"


def ending(run: Run) -> str:
    """Return how a recording ended."""
    if run.ended_ms is None:
        return "still recording"
    # Newer recordings name it in the reason.
    known = run.exit_code is None or ": " in (run.end_reason or "")
    return f"{run.end_reason}{'' if known else f', exit code {run.exit_code}'}"


def _ticks(count: int) -> str:
    return "1 tick" if count == 1 else f"{count} ticks"


def briefly(problem: str) -> str:
    """Return why no GPU was read, in short: the header has already said it in full."""
    cause = re.split(r", so nothing|: nothing", problem)[0].rstrip(".")
    no_driver = cause.startswith(("There is no NVIDIA driver", "The NVIDIA driver is not loaded"))
    return "no NVIDIA driver here" if no_driver else cause


def _mean(summary: RunSummary, metric: Metric, subject: int) -> str:
    found = summary.of(metric, subject)
    return numbers.show(found.mean if found else None, metric.unit)


def _most(summary: RunSummary, metric: Metric, subject: int) -> str:
    found = summary.of(metric, subject)
    return numbers.show(found.most if found else None, metric.unit)


def _gpu_line(summary: RunSummary, gpu: Gpu) -> str:
    return (
        f"  GPU {gpu.idx:<4} utilisation {_mean(summary, m.GPU_UTILISATION, gpu.id)},"
        f" SM {_mean(summary, m.GPU_SM_ACTIVITY, gpu.id)},"
        f" tensor {_mean(summary, m.GPU_TENSOR_ACTIVITY, gpu.id)},"
        f" memory at most {_most(summary, m.GPU_MEMORY_USED, gpu.id)}"
        f" of {_most(summary, m.GPU_MEMORY_TOTAL, gpu.id)},"
        f" {_mean(summary, m.GPU_POWER, gpu.id)},"
        f" {_most(summary, m.GPU_ENERGY, gpu.id)} ({printable(gpu.name or '?')})"
        f"{', then LOST' if summary.why_not(m.GPU_UTILISATION, gpu.id) == LOST else ''}"
    )


def _energy_line(summary: RunSummary) -> Iterator[str]:
    """Yield what the GPUs used in all, where that is known."""
    used = energy_of(summary)
    parts = [] if used.joules is None else [numbers.show(used.joules, "joules")]
    if used.joules_per_step is not None:
        parts.append(f"{numbers.show(used.joules_per_step, 'joules')} a step")
    if used.money is not None:
        parts.append(numbers.money(used.money, used.currency))
    if parts:
        yield f"  energy   {', '.join(parts)}, in {used.gpu_hours:.3g} GPU hours"


def _job_line(summary: RunSummary) -> str:
    run = summary.run.id
    return (
        f"  job      cpu {_mean(summary, m.JOB_CPU, run)} cores"
        f" (busiest main thread {_mean(summary, m.JOB_MAIN_THREAD, run)}),"
        f" memory at most {_most(summary, m.JOB_RSS, run)},"
        f" {_counted(summary, m.JOB_PROCESSES, 'process', 'processes')},"
        f" {_counted(summary, m.JOB_THREADS, 'thread', 'threads')},"
        f" disk read {_mean(summary, m.JOB_DISK_READ, run)}"
    )


def _counted(summary: RunSummary, metric: Metric, one: str, several: str) -> str:
    count = _most(summary, metric, summary.run.id)
    return f"{count} {one if count == '1' else several}"


def _host_line(summary: RunSummary) -> str:
    run = summary.run.id
    cores = summary.of(m.HOST_CORES, run)
    return (
        f"  machine  cpu {_mean(summary, m.HOST_CPU, run)}"
        f" of {numbers.show(cores.most if cores else None, 'count')} cores,"
        f" waiting for I/O {_mean(summary, m.HOST_IOWAIT, run)},"
        f" network in {_mean(summary, m.HOST_NET_RX, run)}"
    )


def _own_line(summary: RunSummary) -> str:
    run = summary.run.id
    cpu = summary.of(m.SELF_CPU, run)
    nvml = f" NVML {_mean(summary, m.SELF_NVML, run)} a tick," if summary.gpus else ""
    return (
        f"  monitor  cpu {numbers.show(cpu.mean if cpu else None, 'ratio')} of a core,"
        f" memory {_most(summary, m.SELF_RSS, run)},{nvml}"
        f" {_most(summary, m.SELF_MISSED, run)} ticks missed{_held(summary)}"
    )


def _held(summary: RunSummary) -> str:
    """Say how long the job stood still for traces, where any was taken."""
    cost = None if summary.diagnosis is None else summary.diagnosis.overhead
    if cost is None or cost.traces_held_s is None:
        return ""
    traces = "1 trace" if cost.traces == 1 else f"the last {cost.traces} traces"
    return f", {numbers.show(cost.traces_held_s, 'seconds')} for {traces}"


def unknown_lines(summary: RunSummary) -> list[str]:
    """Return which GPU and job metrics never had a value, by reason."""
    subjects = [(Scope.GPU, g.id) for g in summary.job_gpus()] + [(Scope.JOB, summary.run.id)]
    return by_reason(
        (metric, reason)
        for scope, subject in subjects
        for metric in metrics_of(scope)
        if summary.of(metric, subject) is None and (reason := summary.why_not(metric, subject))
    )

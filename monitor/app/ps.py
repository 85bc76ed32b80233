"""``monitor ps``: the jobs of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click

from whyidle.monitor.app import access
from whyidle.monitor.app.jobs import Job, Jobs, find_jobs
from whyidle.monitor.app.recorded_now import Now, recorded_now
from whyidle.monitor.attach.answers import OUTSIDE, Refusal
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.paths import database
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.render import jsonl, numbers
from whyidle.monitor.render.console import say
from whyidle.monitor.render.tables import table

NO_JOB: Final = "No job runs here: nothing on a GPU, no JAX, PyTorch, TensorFlow or Julia loaded."
# Below this a GPU is said to idle: most of it is paid for and not used.
IDLE_BELOW: Final = 0.5
NOT_WATCHED: Final = "not watched"
_NUMBERS: Final = frozenset({"", "pid", "gpu mem", "cores", "steps/s"})
# Where a terminal has room for what else is known of a job, beside why it idles.
WIDE: Final = 110
# Of the name of a job, beside why it idles.
LONGEST_NAME: Final = 24


def run(*, as_json: bool) -> None:
    """List the jobs."""
    fs = ProcFs()
    shut = access.closed(fs)
    found = find_jobs(fs)
    now = recorded_jobs()
    if as_json:
        rows = [_row(job, now) for job in found.jobs]
        click.echo(
            jsonl.line(
                {
                    "ps": rows,
                    "gpu_problem": found.gpu_problem,
                    "unmatched": [{"gpu": index, "pid": pid} for index, pid in found.strangers],
                }
            )
        )
        return
    if shut is not None:
        say(shut.what, shut.next_step)
    click.echo(job_table(found.jobs, now, shut) if found.jobs else NO_JOB)
    for line in notes(found, shut):
        click.echo(line, err=True)


def recorded_jobs(store: Path | None = None) -> dict[int, Now]:
    """Return what recordings say now; a store that cannot be read says so elsewhere."""
    try:
        return recorded_now(store or database())
    except StorageProblem:
        return {}


def notes(found: Jobs, shut: Refusal | None) -> Iterator[str]:
    """Return why some cannot be entered, and what is not known, one line each."""
    why: dict[str, list[str]] = {}
    for job in found.jobs:
        if job.not_inside is not None and shut is None:
            pid = str(job.identity.key.pid)
            reason = job.not_inside.replace(f"Process {pid} ", "it ").replace(
                f"process {pid}", "it"
            )
            why.setdefault(reason, []).append(pid)
    for reason, pids in why.items():
        yield f"{', '.join(pids)} can only be watched from outside: {reason}"
    for index, stranger in found.strangers:
        yield f"GPU {index} is used by pid {stranger}, which is not visible from here."
    if found.gpu_problem:
        yield found.gpu_problem


def _row(job: Job, now: Mapping[int, Now]) -> JsonObject:
    who = job.identity
    recorded = now.get(who.key.pid)
    return {
        "pid": who.key.pid,
        "start_ticks": who.key.start_ticks,
        "user": who.user,
        "script": who.script,
        "command": who.command,
        "framework": who.framework,
        "framework_unknown": "no permission" if who.frameworks is None else None,
        "python": who.python,
        "container": who.container,
        "seconds": round(job.seconds, 1),
        "cpu_cores": round(job.cpu_share, 3),
        "rss_bytes": job.rss,
        "gpus": [
            {"index": index, **jsonl.reading(Scope.GPU_PROCESS, reading)}
            for index, reading in job.gpus.items()
        ],
        "attach": job.attach,
        "attach_refused": job.refused or job.not_inside,
        "gpu_utilization": job.busy,
        "run": recorded and recorded.run,
        "steps_per_s": recorded and recorded.steps_per_s,
    }


def job_table(
    jobs: Sequence[Job],
    now: Mapping[int, Now] = MappingProxyType({}),
    shut: Refusal | None = None,
    *,
    numbered: bool = False,
    why: bool = False,
) -> str:
    """Return the jobs as a table; numbered to choose from, or with what each loses most by."""
    wide = not why or shutil.get_terminal_size((WIDE, 24)).columns >= WIDE
    rows = []
    for number, job in enumerate(jobs, 1):
        who = job.identity
        recorded = now.get(who.key.pid)
        steps = None if recorded is None else recorded.steps_per_s
        memory = [r.get(m.PROCESS_GPU_MEMORY) for r in job.gpus.values()]
        name = who.script + (f" ({min(who.frameworks)})" if who.frameworks else "")
        held = numbers.show(sum(v for v in memory if v is not None) or None, "bytes")
        cells = {
            "": str(number) if numbered else None,
            "pid": str(who.key.pid),
            "user": who.user,
            "gpu": ",".join(job.gpus) or numbers.DASH,
            "busy": busy(job.busy),
            "gpu mem": held if wide else None,
            "cores": f"{job.cpu_share:.2f}" if wide else None,
            "steps/s": numbers.DASH if steps is None else numbers.amount(steps, ""),
            "attach": may_attach(job, shut),
            "job": name[-LONGEST_NAME:] if why else name,
            "why": _why(recorded) if why else None,
        }
        rows.append({title: cell for title, cell in cells.items() if cell is not None})
    right = "".join("r" if title in _NUMBERS else " " for title in rows[0])
    return table(list(rows[0]), [list(row.values()) for row in rows], right=right, sentence=why)


def busy(share: float | None) -> str:
    """Say how busy the GPUs of a job are, and whether that is idle."""
    shown = numbers.show(share, "ratio")
    return f"{shown} idle" if share is not None and share < IDLE_BELOW else shown


def may_attach(job: Job, shut: Refusal | None) -> str:
    """Answer whether attaching gets inside: yes, with sudo, or no."""
    if job.refused is None and job.attach not in {None, OUTSIDE}:
        return "yes"
    by_root = job.refused is not None or (shut is not None and shut.next_step.startswith("sudo"))
    return "sudo" if by_root else "no"


def _why(recorded: Now | None) -> str:
    if recorded is None:
        return NOT_WATCHED
    found = recorded.finding
    if found is None:
        return "nothing found yet"
    gain = "" if found.get("expected") is None else f"{found['expected']:.1f}x: "
    return f"{gain}{found['title']}"

"""``monitor ps``: the jobs of this machine."""

from __future__ import annotations

from collections.abc import Sequence

import click

from whyidle.monitor.app.jobs import Job, find_jobs
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.render import jsonl, numbers
from whyidle.monitor.render.tables import table


def run(*, as_json: bool) -> None:
    """List the jobs."""
    found = find_jobs()
    if as_json:
        rows = [_row(job) for job in found.jobs]
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
    if found.jobs:
        click.echo(job_table(found.jobs))
    else:
        click.echo(
            "No job runs here: nothing on a GPU, no JAX, PyTorch, TensorFlow or Julia loaded."
        )
    for index, pid in found.strangers:
        click.echo(f"GPU {index} is used by pid {pid}, which is not visible from here.", err=True)
    if found.gpu_problem:
        click.echo(found.gpu_problem, err=True)


def _row(job: Job) -> JsonObject:
    who = job.identity
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
    }


def job_table(jobs: Sequence[Job], *, numbered: bool = False) -> str:
    """Return the jobs as a table."""
    rows = []
    for number, job in enumerate(jobs, 1):
        who = job.identity
        shares = [r.get(m.PROCESS_SM_SHARE) for r in job.gpus.values()]
        memory = [r.get(m.PROCESS_GPU_MEMORY) for r in job.gpus.values()]
        row = [
            str(who.key.pid),
            who.user,
            ",".join(job.gpus) or numbers.DASH,
            numbers.show(sum(v for v in memory if v is not None) or None, "bytes"),
            numbers.show(max((s for s in shares if s is not None), default=None), "ratio"),
            f"{job.cpu_share:.2f}",
            numbers.size(job.rss),
            numbers.duration(job.seconds),
            job.refused or job.attach or numbers.DASH,
            who.framework or "?",
            who.script,
        ]
        rows.append([str(number), *row] if numbered else row)
    titles = [
        "pid",
        "user",
        "gpu",
        "gpu mem",
        "sm",
        "cores",
        "memory",
        "time",
        "attach",
        "framework",
        "job",
    ]
    right = "r  rrrrr"
    return table(
        ["", *titles] if numbered else titles, rows, right=("r" if numbered else "") + right
    )

"""Choose a job from a list when no PID was given."""

from __future__ import annotations

import sys

import click

from whyidle.monitor.app.jobs import find_jobs
from whyidle.monitor.app.ps import job_table
from whyidle.monitor.core.errors import TargetGone, UsageProblem
from whyidle.monitor.processes.process import ProcessKey, find_target

_NEXT = "Start one with: monitor run -- python train.py    or name any process: monitor attach PID"


def pick() -> ProcessKey:
    """Return the chosen process; without a terminal nobody can choose."""
    found = find_jobs()
    jobs = [j for j in found.jobs if j.refused is None]
    if not jobs:
        raise TargetGone("No JAX, PyTorch, TensorFlow or Julia job of yours runs here.", _NEXT)
    if not sys.stdin.isatty():
        pids = ", ".join(str(j.identity.key.pid) for j in jobs)
        raise UsageProblem("Without a terminal attach needs a PID.", f"Jobs that run here: {pids}")
    click.echo(job_table(jobs, numbered=True), err=True)
    number: int = click.prompt(
        "Watch which one", type=click.IntRange(1, len(jobs)), default=1, err=True
    )
    key = jobs[number - 1].identity.key
    if find_target(str(key.pid)) != key:
        raise TargetGone(f"Process {key.pid} has ended meanwhile.", "Choose again: monitor attach")
    return key

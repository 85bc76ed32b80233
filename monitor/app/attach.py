"""``monitor attach``: watch a job that already runs."""

from __future__ import annotations

import contextlib
import signal
import sys

import click

from whyidle.monitor.app import access, live_dashboard, record
from whyidle.monitor.app import notify as notifying
from whyidle.monitor.app.background import announcer, start
from whyidle.monitor.app.jobs import check_is_a_job, find_jobs
from whyidle.monitor.app.ps import job_table
from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.core.errors import Exit, TargetGone, UsageProblem
from whyidle.monitor.core.pace import unhurried
from whyidle.monitor.core.paths import database, hand_over
from whyidle.monitor.processes import by_name, job
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording.requests import Wanted
from whyidle.monitor.recording.session import Keys, Session
from whyidle.monitor.render.console import mute, say

_NEXT = "Start one with: monitor run -- python train.py    or name any process: monitor attach PID"


def run(
    *,
    pid: str | None,
    wait: bool,
    seconds: float | None,
    hz: float,
    label: str | None,
    everything: bool,
    require_gpu: bool,
    observe: bool,
    any_user: bool,
    trace_share: float | None,
    no_trace: bool,
    quiet: bool,
    dashboard: bool,
    export: int | None,
    notify: str | None,
    background: bool,
    ready_fd: int | None,
    start_ticks: int | None,
    as_json: bool,
) -> None:
    """Record the job until it ends, or in the background."""
    share = record.share_of(trace_share, no_trace=no_trace)
    told = None if notify is None else notifying.arguments(notify)
    target = _whole(_target(pid, start_ticks, wait=wait))
    if not observe:
        check_is_a_job(target)
    if background:
        if dashboard:
            raise live_dashboard.nowhere_to_say()
        if export is not None:
            raise UsageProblem(
                "In the background a recording serves nothing to Prometheus.",
                "Start the exporter by itself, it reads what is recorded: monitor export",
            )
        start(target, seconds=seconds, hz=hz, label=label, require_gpu=require_gpu,
              observe=observe, any_user=any_user, trace_share=share, notify=notify,
              as_json=as_json)  # fmt: skip
        return
    if not observe:
        _say_if_closed(target)
    with unhurried():
        screen = record.screen(as_json=as_json, quiet=quiet, everything=everything)
    with _exporting(export), live_dashboard.beside(screen, wanted=dashboard) as opened:
        shown, at_the_end = notifying.beside(opened.screen, told)
        session = Session(database(), shown, keys=screen if isinstance(screen, Keys) else None)
        # Its user may look at it meanwhile.
        hand_over()
        session.open_gpus(require=require_gpu)
        summary = session.record(
            Wanted(target, hz, label, observe=observe, any_user=any_user, trace_share=share),
            seconds,
            stop_on=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
            ready=None if ready_fd is None else announcer(ready_fd),
        )
        at_the_end(summary)
        try:
            record.show(summary, as_json=as_json)
        except OSError:
            if session.stopped_by != signal.SIGHUP:
                raise
            # The terminal has gone: nobody can read it.
            mute()
        if session.stopped_by is None:
            opened.stay(summary.run.id, may_wait=sys.stdout.isatty() and not as_json)
    if session.stopped_by == signal.SIGHUP:
        sys.exit(Exit.HUNG_UP)


def _say_if_closed(target: Target) -> None:
    """Say before anything else what this machine or container keeps from us, and what opens it."""
    why = access.closed(target.fs, str(target.pid))
    if why is not None and ladder.best(ladder.rungs(target)).name == OUTSIDE:
        say(f"{why.what} Meanwhile it is watched from outside.", why.next_step)


def _exporting(port: int | None) -> contextlib.AbstractContextManager[None]:
    if port is None:
        return contextlib.nullcontext()
    # A web server, which few ask for here.
    from whyidle.monitor.app.exporting import beside  # noqa: PLC0415

    return beside(port)


def _target(pid: str | None, start_ticks: int | None, *, wait: bool) -> Target:
    """Return the process that is meant: by its number, by its script, or as a person chooses."""
    if wait and (pid is None or pid.isdecimal()):
        raise UsageProblem(
            "--wait is for a process that has no number yet.",
            "Name its script: monitor attach train.py --wait",
        )
    if pid is None:
        return _pick()
    if pid.isdecimal():
        return _same(pid, start_ticks)
    if wait:
        say(f"Waiting for a process that runs '{pid}'.", "Ctrl-C ends that.")
    return by_name.wait_for(pid) if wait else by_name.find(pid)


def _whole(named: Target) -> Target:
    """Return the process that began the job of which the named one is a part."""
    found = job.whole(named)
    if found.key != named.key:
        title = named.identity.title if named.identity is not None else None
        say(
            f"Process {named.pid} ({title or 'a part'}) works for process {found.pid}:"
            " the whole job is watched."
        )
    return found


def _pick() -> Target:
    """Let a person choose a job from a list; without a terminal nobody can."""
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
    return _same(str(key.pid), key.start_ticks, "Choose again: monitor attach")


def _same(
    pid: str, start_ticks: int | None, next_step: str = "See what runs with: monitor ps"
) -> Target:
    """Return the process that the user named, unless another one has its pid by now."""
    target = Target.named(pid)
    if start_ticks not in {None, target.key.start_ticks}:
        raise TargetGone(f"Process {pid} has ended meanwhile.", next_step)
    return target

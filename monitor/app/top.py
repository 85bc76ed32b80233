"""``monitor top``: the jobs of this machine, looked at time and again."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

import click

from whyidle.monitor.app import access
from whyidle.monitor.app.jobs import Job, find_jobs
from whyidle.monitor.app.ps import NO_JOB, job_table, notes, recorded_jobs
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.gpus import GpuProbe


def run(*, seconds: float) -> None:
    """Show the jobs until Ctrl-C; once where no terminal shows it."""
    pages = _pages()
    if not sys.stdout.isatty():
        click.echo(next(pages))
        return
    # Rich takes a tenth of a second.
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    waiting = threading.Event()
    with contextlib.suppress(KeyboardInterrupt), Live(auto_refresh=False, screen=True) as live:
        for page in pages:
            live.update(Text(page, no_wrap=True, overflow="ellipsis"), refresh=True)
            waiting.wait(seconds)


def _pages() -> Iterator[str]:
    """Return what each look at the machine shows."""
    fs, probe = ProcFs(), GpuProbe()
    shut = access.closed(fs)
    known: dict[ProcessKey, Job] = {}
    while True:
        found = find_jobs(fs, probe, known)
        known = {job.identity.key: job for job in found.jobs}
        lines = [] if shut is None else [shut.what, *shut.next_step.splitlines(), ""]
        if found.jobs:
            lines.append(job_table(found.jobs, recorded_jobs(), shut, why=True))
        else:
            lines.append(NO_JOB)
        lines += ["", *notes(found, shut)]
        lines.append("Why one idles: monitor attach PID    Ctrl-C ends this.")
        yield "\n".join(lines)

"""``monitor doctor``: what works here, and what to type where it does not."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.core.errors import Exit


@click.command()
@click.argument("pid", required=False)
@options.require_gpu
@click.option(
    "--salvage",
    "damaged",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Copy what is readable of a damaged store into the present one.",
)
@options.as_json
def command(*, pid: str | None, require_gpu: bool, damaged: str | None, as_json: bool) -> None:
    """Check what works here.

    The driver, the GPUs and the store; with PID also what can be seen of that job, and which of the
    ways into it are open.

    The job is not touched, and nothing is changed without --salvage.
    """
    from whyidle.monitor.app.doctor import examine
    from whyidle.monitor.processes.process import find_target
    from whyidle.monitor.render import jsonl
    from whyidle.monitor.render.escape import printable

    if damaged is not None:
        _salvage(damaged, as_json=as_json)
        return
    target = find_target(pid) if pid is not None else None
    checks = []
    for check in examine(target):
        checks.append(check)
        if not as_json:
            click.echo(f"{check.state:<4}  {check.name:<18} {printable(check.detail)}")
            if check.next_step:
                click.echo(f"{'':<25}-> {printable(check.next_step)}")
    if as_json:
        click.echo(jsonl.listing("doctors", [asdict(c) for c in checks]))
    failed = {c.name for c in checks if c.state == "fail"}
    if "store" in failed:
        sys.exit(Exit.STORAGE)
    if require_gpu and "gpu driver" in failed:
        sys.exit(Exit.NO_GPU)


def _salvage(damaged: str, *, as_json: bool) -> None:
    from pathlib import Path

    from whyidle.monitor.core.paths import database
    from whyidle.monitor.render import jsonl
    from whyidle.monitor.store import salvage

    copied = salvage(Path(damaged), database())
    if as_json:
        click.echo(jsonl.line({"salvaged": copied}))
        return
    rows = sum(copied.values())
    click.echo(f"Copied {copied.get('run', 0)} recordings ({rows} rows) into {database()}.")
    click.echo("  Look at them with: monitor runs")

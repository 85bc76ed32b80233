"""``monitor doctor``: what works here, and what to type where it does not."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
This machine:   monitor doctor
One process:    monitor doctor 4711"""


@click.command(epilog=_EPILOG)
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
@options.implemented_by("doctor")
def command() -> None:
    """Check what works here, and whether you can attach.

    The driver, the GPUs and the store; with PID also what can be seen of that job, and which ways
    into it are open.

    The job is not touched, and nothing is changed without --salvage.
    """

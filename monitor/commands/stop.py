"""``monitor stop``: end a recording that runs in the background."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
The only one:     monitor stop
One of several:   monitor stop 7
All of them:      monitor stop --all"""


@click.command(epilog=_EPILOG)
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="End every recording of this machine.")
@options.as_json
@options.implemented_by("stop")
def command() -> None:
    """End a recording that runs in the background.

    Without RUN, the only one that runs. It prints the summary; the job itself continues.
    """

"""``monitor runs``: what was recorded."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
All recordings:    monitor runs
The newest:        monitor runs last
Give one a name:   monitor runs 7 --label before"""


@click.command(epilog=_EPILOG)
@click.argument("run", required=False)
@click.option(
    "--label", metavar="TEXT", callback=options.text, help="Name this recording; '' for no name."
)
@options.as_json
@options.implemented_by("runs")
def command() -> None:
    """List the recordings, or show one.

    RUN is its number, its label, or `last`.
    """

"""``monitor runs``: what was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._carry import carried_out

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("run", required=False)
@click.option(
    "--label", metavar="TEXT", callback=options.text, help="Name this recording; '' for no name."
)
@options.as_json
@carried_out("runs")
def command() -> None:
    """List the recordings, or tell of one.

    RUN is its number, its label, or `last`.
    """

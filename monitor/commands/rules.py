"""``monitor rules``: every fault that is known, and the page of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._carry import carried_out

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("rule", metavar="[ID]", required=False)
@options.as_json
@carried_out("rules")
def command() -> None:
    """List the faults that are looked for, or show the page of one.

    A page tells what the rule sees, why it costs, how to fix it, and when the rule is wrong.
    """

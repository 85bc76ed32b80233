"""``monitor rules``: every fault that is known, and the page of one."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
Every fault:       monitor rules
The page of one:   monitor rules input_starved"""


@click.command(epilog=_EPILOG)
@click.argument("rule", metavar="[ID]", required=False)
@options.as_json
@options.implemented_by("rules")
def command() -> None:
    """List the faults that are looked for, or explain one.

    A page says what the rule sees, why it costs, how to fix it, and when the rule is wrong.
    """

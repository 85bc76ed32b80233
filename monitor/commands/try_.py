"""``monitor try``: a change in a running job, measured against itself, and taken back."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
What can be tried:        monitor try --list
What the findings say:    monitor try PID --suggest
Let it stay if it helps:  monitor try PID gc.freeze --keep"""


@click.command(name="try", epilog=_EPILOG)
@click.argument("pid", required=False)
@click.argument("knob", metavar="[KNOB[=VALUE]]", required=False)
@click.option("--for", "seconds", type=options.Finite(min=1.0, max=3600.0), metavar="S",
              help="The longest time (default: a minute, or what its steps need).")  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep the change, unless the job gets slower.")
@click.option("--allow-numerics", "numerics", is_flag=True,
              help="Also try what may change digits of what the job computes.")  # fmt: skip
@click.option("--suggest", is_flag=True, help="List the knobs that findings of the job point to.")
@click.option("--list", "listed", is_flag=True, help="List all knobs: needs, risks, how undone.")
@options.as_json
@options.implemented_by("try_")
def command() -> None:
    """Try a change in a running job, and measure what it gives.

    The change is turned on and off in turns, for some steps each; neighboring blocks are compared,
    and an interval shows how certain the answer is. Then the job is as it was, also after Ctrl-C, a
    monitor that is killed, a job that gets 20% slower, or memory that nears its limit.
    """

"""``monitor demo``: a fault before and after its fix, run here, predicted and measured."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

FRAMEWORKS = ("jax", "torch", "tensorflow", "julia")


# A program that trains for less shows nothing of its steps.
LEAST = 0.5


_EPILOG = """\b
Three faults, one after the other:  monitor demo
One that you know:                  monitor demo input_starved
All there are:                      monitor demo --list"""


@click.command(epilog=_EPILOG)
@click.argument("fault", required=False)
@click.option("--framework", type=click.Choice(FRAMEWORKS), metavar="jax|torch|tensorflow|julia",
              help="Only with this one.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Run every pair; this takes a while.")
@click.option("--list", "only_list", is_flag=True, help="List the faults, and run nothing.")
@click.option("--seconds", type=options.Finite(min=LEAST), metavar="S",
              help="Train for this long, before and after (default: as long as the fault takes"
                   " to show, 7 to 18).")  # fmt: skip
@click.option("--rounds", type=options.Whole(1, 20), default=1, show_default=True, metavar="N",
              help="Run both sides this often, in turns: how certain the gain is.")  # fmt: skip
@click.option("--no-dashboard", is_flag=True, help="Do not mention the dashboard at the end.")
@options.as_json
@options.implemented_by("demo")
def command() -> None:
    """Run a small job with a fault, then with its fix, and compare.

    Both are recorded as by `monitor run`: the fault is found with its line of code, the speed-up is
    predicted, the fix applied, and the speed-up measured here. Without FAULT it shows three. With
    --json it prints one object a line for each fault.
    """

"""``monitor fix``: the change that fixes a finding, as a patch."""

from __future__ import annotations

from pathlib import Path

import click

from whyidle.monitor.commands import _options as options

TURNS, SECONDS, TOLERANCE = 3, 30.0, 1e-3

_EPILOG = """\b
The change as a diff:        monitor fix last
Into your files:             monitor fix last input_starved --write
A copy to look at:           monitor fix last --apply-to /tmp/changed
Is it faster, and the same?  monitor fix last --verify 'python train.py --steps 300'"""


@click.command(epilog=_EPILOG)
@click.argument("target", metavar="[RUN]", default="last")
@click.argument("rule", metavar="[RULE]", required=False)
@click.option("--apply-to", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write a changed copy of the code into this new folder.")  # fmt: skip
@click.option("--write", is_flag=True,
              help="Change your files, if git has nothing uncommitted.")  # fmt: skip
@click.option("--force", is_flag=True, help="With --write: also without git, or with"
              " uncommitted changes.")  # fmt: skip
@click.option("--verify", metavar="CMD",
              help="Run this with the code as it is and with the change, in turns.")  # fmt: skip
@click.option("--check", metavar="CMD",
              help="With --verify: a command whose output must be the same with both.")  # fmt: skip
@click.option("--turns", type=options.Whole(2, 50), default=TURNS, show_default=True,
              help="With --verify: how often each is run.")  # fmt: skip
@click.option("--for", "seconds", type=options.Finite(min=1.0), default=SECONDS, metavar="S",
              show_default=True, help="With --verify: end each run after this time.")  # fmt: skip
@click.option("--tolerance", type=options.Finite(min=0.0), default=TOLERANCE, metavar="T",
              show_default=True,
              help="With --verify: by which fraction results may differ.")  # fmt: skip
@click.option("--allow-numerics", is_flag=True,
              help="Also make changes to what is computed: precision, random numbers.")  # fmt: skip
@options.as_json
@options.implemented_by("fix")
def command() -> None:
    """Print the change that fixes what was found, as a diff.

    It does so only if the source proves that the change is right; else it says what prevents it,
    and prints the advice. Without RULE: for every finding. Nothing is written to your files without
    --write.

    --verify runs CMD in the current folder as it is, and in a changed copy of it, in turns, and
    says whether it got faster, by how much, and whether it prints the same results.
    """

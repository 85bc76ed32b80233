"""``monitor baseline``: recordings to hold later ones against."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
Keep the last recording:     monitor baseline save main
Three runs of one program:   monitor run --repeat 3 -- python train.py
                             monitor baseline save main --newest 3
As a file of the project:    monitor baseline save ./ci/main.json.gz
Hold a change against it:    monitor run --gate main -- python train.py"""


@click.group(epilog=_EPILOG)
def command() -> None:
    """Save runs as a baseline that later ones are judged by.

    `monitor run --gate` compares with it. A baseline is one file, and stays when its recordings are
    deleted. NAME is a word, or the path of a file, which can be committed or copied to another
    machine.
    """


@command.command()
@click.argument("name")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--newest", type=options.Whole(min=1), metavar="N", help="The newest N recordings.")
@options.as_json
@options.implemented_by("baseline", "save")
def save() -> None:
    """Save recordings of one program as a baseline.

    RUN is a number, a label, or `last` (which it is without one). Of several the middle one is
    compared with, and all of them say how much the program varies. One of that name is replaced.
    """


@command.command("list")
@options.as_json
@options.implemented_by("baseline", "listing")
def listing() -> None:
    """List the baselines that have a name."""


@command.command()
@click.argument("name")
@options.as_json
@options.implemented_by("baseline", "remove")
def remove() -> None:
    """Delete a baseline; the recordings stay."""

"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whyidle.monitor.errors import Exit

if TYPE_CHECKING:
    from whyidle.monitor.recording.session import Screen
    from whyidle.monitor.summary import RunSummary

Function = TypeVar("Function", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
label = click.option("--label", metavar="NAME", help="A name to find this recording by.")
hz = click.option(
    "--hz",
    type=click.FloatRange(0.1, 10.0),
    default=1.0,
    show_default=True,
    help="Ticks per second.",
)
everything = click.option(
    "--all-gpus", "everything", is_flag=True, help="Show every GPU, not only this job's."
)
require_gpu = click.option(
    "--require-gpu", is_flag=True, help=f"Without a GPU that answers: end with {Exit.NO_GPU.value}."
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Show nothing until the end.")


def screen(*, as_json: bool, quiet: bool, everything: bool) -> Screen:
    """Return the screen that fits the options and the terminal."""
    import os
    import sys

    from whyidle.monitor.render import screens

    if as_json:
        return screens.JsonLines()
    if quiet:
        return screens.Quiet()
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from whyidle.monitor.render.live import LiveView

        return LiveView(everything=everything)
    return screens.PlainLines(everything=everything)


def tell(told: RunSummary, *, as_json: bool, err: bool = False) -> None:
    """Print the summary of a recording."""
    from whyidle.monitor.render import jsonl, plain

    text = jsonl.line(jsonl.summary(told)) if as_json else plain.summary(told)
    click.echo(text, err=err)

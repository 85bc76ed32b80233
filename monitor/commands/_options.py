"""What commands share: options, and the way to the module that does the work."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.pace import is_crowded, unhurried

Function = TypeVar("Function", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A number in a range; nan is in none, though every comparison lets it through."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"'{value}' is not a number{_range(self)}.", param, ctx)
        return number


class Whole(click.IntRange):
    """A whole number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"'{value}' is not a whole number{_range(self)}.", param, ctx)


def _range(numbers: click.IntRange | click.FloatRange) -> str:
    """Return a range in words; without end on one side or both."""
    least = (
        "" if numbers.min is None else f" {'above' if numbers.min_open else 'from'} {numbers.min:g}"
    )
    most = "" if numbers.max is None else f" {'to' if least else 'up to'} {numbers.max:g}"
    return f"{least}{most or (' on' if least and not numbers.min_open else '')}"


PORT = Whole(1, 65535)


def text(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Return text that is valid UTF-8; a shell may give us anything."""
    return value and value.encode("utf-8", "backslashreplace").decode()


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
label = click.option(
    "--label", metavar="NAME", help="A name to find this recording by.", callback=text
)
hz = click.option(
    "--hz",
    type=Finite(0.1, 10.0),
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
observe = click.option(
    "--observe", is_flag=True, help="Only look from outside: nothing goes into the job."
)
any_user = click.option(
    "--any-user",
    is_flag=True,
    help=("Also enter processes of users other than that of the job's first process."),
)
_trace_share = click.option(
    "--trace-share",
    type=Finite(0.0, 1.0),
    metavar="X",
    help="Most of the job's time to use for short traces (default: 0.01; 0: none).",
)
_no_trace = click.option(
    "--no-trace", is_flag=True, help=("Take no traces; same as --trace-share 0.")
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Show nothing until the end.")


def traces(function: Function) -> Function:
    """Add the options that say how much of a job's time goes into traces."""
    return _trace_share(_no_trace(function))


def implemented_by(
    name: str, function: str = "run", room: str = "app", *, beside_a_job: bool = False
) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """Hand the options of a command by name to a function of a module in ``app/`` or another room.

    It is imported when the command runs and not before, so that --help is quick; beside a job that
    needs the cores, slowly.
    """

    def declare(command: Callable[[], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**options: object) -> None:
            # What goes on in the background starts by itself once more.
            slowly = beside_a_job and not options.get("background")
            if slowly and sys.stderr.isatty() and is_crowded():
                click.echo(
                    "Every core is in use: starting slowly, so that the job keeps them.", err=True
                )
            with unhurried() if slowly else contextlib.nullcontext():
                module = importlib.import_module(f"whyidle.monitor.{room}.{name}")
            getattr(module, function)(**options)

        return call

    return declare

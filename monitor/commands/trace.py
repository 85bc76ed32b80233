"""``monitor trace``: where the time of a trace went."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._output import say
from whyidle.monitor.commands._view import command as view
from whyidle.monitor.errors import UsageProblem

if TYPE_CHECKING:
    from whyidle.monitor.traces.analysis import Analysis

TOP = 5


class FileFirst(click.Command):
    """``trace FILE`` analyses; ``trace view FILE`` is a command of its own."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Hand the line to ``view`` if that is its first word; a file of that name is ./view."""
        if args[:1] == ["view"]:
            return view.make_context(f"{info_name} view", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


_EPILOG = """\b
Look at it elsewhere:   monitor trace view FILE              (XPlane, in XProf)
                        monitor trace view FILE --perfetto OUT.json.gz
A file named view:      monitor trace ./view"""


@click.command(cls=FileFirst, epilog=_EPILOG)
@click.argument("file")
@click.option("--top", type=click.IntRange(min=0), default=TOP, show_default=True, metavar="N",
              help="Kernels to list.")  # fmt: skip
@click.option("--run", metavar="RUN", help="Keep it with this recording; see `monitor runs`.")
@options.as_json
def command(*, file: str, top: int, run: str | None, as_json: bool) -> None:
    """Account for the time in a profiler's file.

    FILE is a trace of the PyTorch profiler (Kineto JSON) or of JAX and TensorFlow (XPlane), also
    with .gz. Every nanosecond of each device is compute, communication, copies, or idle by cause.
    """
    # Said before a long file is read, not after.
    number = None if run is None else _number_of(run)
    analysis = analysis_of(file)
    from whyidle.monitor.traces.answer import contract

    told = contract(analysis)
    _show(told, Path(file).name, top, as_json=as_json)
    # Last: a full disk must not cost the answer.
    if number is not None:
        _keep(analysis, told, number)


def _show(told: dict[str, Any], name: str, top: int, *, as_json: bool) -> None:
    from whyidle.monitor.render.jsonl import line
    from whyidle.monitor.render.trace import screen

    if as_json:
        click.echo(line(told))
    else:
        click.echo(screen(told, name=name, top=top), color=True)


def _number_of(run: str) -> int:
    from whyidle.monitor.state import database
    from whyidle.monitor.store import Reader

    with Reader.open(database()) as reader:
        return reader.find(run).id


def _keep(analysis: Analysis, told: dict[str, Any], run: int) -> None:
    from whyidle.monitor.kept import keep
    from whyidle.monitor.state import database

    segments = [report.budget.segments for report in analysis.devices]
    steps = (analysis.steps.start, analysis.steps.end)
    keep(
        database(),
        analysis.trace,
        told,
        file=analysis.path,
        segments=segments,
        steps=steps,
        run=run,
    )
    say(f"The trace is kept with run {run}.", f"Look at it with: monitor trace view {run}")


def analysis_of(file: str) -> Analysis:
    """Read and understand a file, and show how far it is where that takes long."""
    path = the_file(file)
    from whyidle.monitor.render.progress import Progress
    from whyidle.monitor.traces.analysis import analyse

    with Progress(path.name) as progress:
        return analyse(path, progress)


def the_file(file: str) -> Path:
    """Return the path; a number that names no file is meant as a process."""
    if file.isdecimal() and not os.path.exists(file):  # noqa: PTH110  it may be too long
        raise UsageProblem(
            f"There is no file named {file}, and a running process cannot be traced yet:"
            " only files can be analysed.",
            f"To watch the process from outside: monitor attach {file}",
        )
    return Path(file)

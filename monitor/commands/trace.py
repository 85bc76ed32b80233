"""``monitor trace``: where the time of a trace went, of a file or of a process right now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._output import say
from whyidle.monitor.commands._take import MOST_SECONDS, MOST_SERVER_SECONDS, SECONDS, take
from whyidle.monitor.commands._view import command as view
from whyidle.monitor.core.errors import UsageProblem

if TYPE_CHECKING:
    from whyidle.monitor.commands._take import Shot
    from whyidle.monitor.traces.analysis import Analysis
    from whyidle.monitor.traces.window import Window

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
A running process:      monitor trace PID --seconds 0.5
Look at it elsewhere:   monitor trace view FILE              (XPlane, in XProf)
                        monitor trace view FILE --perfetto OUT.json.gz
A file named view:      monitor trace ./view"""


@click.command(cls=FileFirst, epilog=_EPILOG)
@click.argument("file", metavar="FILE|PID")
@click.option("--top", type=click.IntRange(min=0), default=TOP, show_default=True, metavar="N",
              help="Kernels to list.")  # fmt: skip
@click.option("--run", metavar="RUN", help="Keep it with this recording; see `monitor runs`.")
@click.option("--seconds", type=options.Finite(min=0.0, min_open=True, max=MOST_SECONDS),
              metavar="S",
              help=f"Of a process: at most so long (default: {SECONDS:g}).")  # fmt: skip
@click.option("--server", type=click.IntRange(1, 65535), metavar="PORT",
              help="Of a process: ask its own jax.profiler.start_server(PORT), for"
              f" {MOST_SERVER_SECONDS:g} s at most.")  # fmt: skip
@options.as_json
def command(  # the options, by name
    *,
    file: str,
    top: int,
    run: str | None,
    seconds: float | None,
    server: int | None,
    as_json: bool,
) -> None:
    """Account for the time in a profiler's file, or of a running process.

    FILE is a trace of the PyTorch profiler (Kineto JSON) or of JAX and TensorFlow (XPlane), also
    with .gz. Every nanosecond of each device is compute, communication, copies, or idle by cause.

    Of a process with this PID, a number that names no file, a short trace is taken now, through the
    small agent that `monitor attach` also uses: it goes in for it, and out again.

    With --server nothing goes in: a JAX job that called jax.profiler.start_server(PORT) takes the
    trace itself. JAX takes one at a time: a start_trace of the job's own fails in that second, and
    during one of its own ours does, with a line of jaxlib on the job's stderr.
    """
    # Said before a long file is read, not after.
    number = None if run is None else _number_of(run)
    shot = None
    if _is_process(file):
        shot = take(file, SECONDS if seconds is None else seconds, server, number)
        number = shot.run
        file = str(shot.taken.path)
    elif seconds is not None or server is not None:
        raise UsageProblem(
            "--seconds and --server are for a running process, and this is a file.",
            "Leave them out, or name a process: monitor trace PID",
        )
    ours = shot is not None or _is_ours(Path(file))
    window = shot.window if shot is not None else _window_of(Path(file)) if ours else None
    analysis = analysis_of(file, None if window is None else window.step_ns)
    from whyidle.monitor.traces.answer import contract

    told = contract(analysis, ours=ours, window=window)
    _show(told, Path(file).name, top, as_json=as_json)
    # Last: a full disk must not cost the answer.
    if number is not None or shot is not None:
        _keep(analysis, told, number, shot)


def _is_ours(path: Path) -> bool:
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.tracing.space import Space

    return Space(database()).holds(path)


def _window_of(path: Path) -> Window | None:
    """Return what is known of the window of a trace that we took once."""
    from whyidle.monitor.core.errors import StorageProblem
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.store.stored_traces import Kept
    from whyidle.monitor.traces.window import Window

    if not database().exists():
        return None
    try:
        with Kept.open(database()) as kept:
            takes = [trace.taken for trace in kept.traces() if trace.path.name == path.name]
    except StorageProblem:
        # The account is worth telling without.
        return None
    return next((window for taken in takes if (window := Window.of(taken))), None)


def _show(told: dict[str, Any], name: str, top: int, *, as_json: bool) -> None:
    from whyidle.monitor.render.jsonl import line
    from whyidle.monitor.render.trace import screen

    if as_json:
        click.echo(line(told))
    else:
        click.echo(screen(told, name=name, top=top), color=True)


def _number_of(run: str) -> int:
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.store import Reader

    with Reader.open(database()) as reader:
        return reader.find(run).id


def _keep(analysis: Analysis, told: dict[str, Any], run: int | None, shot: Shot | None) -> None:
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.store.stored_traces import keep
    from whyidle.monitor.store.traces import forget
    from whyidle.monitor.tracing.space import Space

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
        taken=shot.told() if shot is not None else None,
    )
    if shot is not None:
        forget(database(), Space(database()).tidy())
    where, name = ("", str(analysis.path)) if run is None else (f" with run {run}", str(run))
    kept = f"The trace is kept{where}" if shot is None else _kept(shot, where)
    say(f"{kept}.", f"Look at it with: monitor trace view {name}")


def _kept(shot: Shot, where: str) -> str:
    from whyidle.monitor.tracing.space import MOST_FILES

    held = shot.taken.held_ns
    stood = f"The job stood still for {held / 1e6:.0f} ms. " if held is not None else ""
    others = "those taken without a run" if shot.run is None else "a run's own"
    return f"{stood}The trace is kept{where}; of {others} the last {MOST_FILES} are"


def analysis_of(file: str, step_ns: int | None = None) -> Analysis:
    """Read and understand a file, and show how far it is where that takes long."""
    path = the_file(file)
    from whyidle.monitor.render.progress import Progress
    from whyidle.monitor.traces.analysis import analyse

    with Progress(path.name) as progress:
        return analyse(path, progress, step_ns)


def _is_process(name: str) -> bool:
    """Tell whether a process is meant: a number that names no file."""
    return name.isdecimal() and not os.path.exists(name)  # noqa: PTH110  it may be too long


def the_file(file: str) -> Path:
    """Return the path; a number that names no file may be meant as a process."""
    if _is_process(file):
        raise UsageProblem(
            f"There is no file named {file}.",
            f"To take a trace of the process: monitor trace {file}",
        )
    return Path(file)

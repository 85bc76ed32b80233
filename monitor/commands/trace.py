"""``monitor trace``: where the time of a trace went, of a file or of a process right now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.core.defaults import MOST_SERVER_SECONDS, MOST_TRACE_SECONDS, TRACE_SECONDS

TOP = 5


@click.command()
@click.argument("file", metavar="FILE|RUN")
@click.option("--perfetto", "out", type=click.Path(path_type=Path), metavar="OUT",
              help="Write OUT (.json or .json.gz), which ui.perfetto.dev opens.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite OUT.")
@click.option("--port", type=options.PORT, metavar="N",
              help="Where XProf listens on 127.0.0.1 (default: any free port).")  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@options.implemented_by("trace_view")
def view() -> None:
    """Look at a trace in XProf (TensorBoard), or in Perfetto: a file, or the last one of a run.

    XProf opens XPlane files (JAX, TensorFlow); it runs until Ctrl-C, on this machine only. Perfetto
    opens what --perfetto writes from any trace: each device with a lane that says why it was idle.
    """


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
All ranks of a job:     monitor trace PID --all-ranks        (of torchrun, mpirun, ..)
Look at it elsewhere:   monitor trace view FILE              (XPlane, in XProf)
                        monitor trace view FILE --perfetto OUT.json.gz
A file named view:      monitor trace ./view"""


@click.command(cls=FileFirst, epilog=_EPILOG)
@click.argument("files", metavar="FILE...|DIR|PID", nargs=-1, required=True)
@click.option("--top", type=options.Whole(min=0), default=TOP, show_default=True, metavar="N",
              help="Kernels to list.")  # fmt: skip
@click.option("--run", metavar="RUN", help="Keep it with this recording; see `monitor runs`.")
@click.option("--seconds", type=options.Finite(min=0.0, min_open=True, max=MOST_TRACE_SECONDS),
              metavar="S",
              help=f"For a process: the longest time (default: {TRACE_SECONDS:g}).")  # fmt: skip
@click.option("--server", type=options.PORT, metavar="PORT",
              help="For a process: ask its own jax.profiler.start_server(PORT), for"
              f" {MOST_SERVER_SECONDS:g} s at most.")  # fmt: skip
@click.option("--all-ranks", is_flag=True,
              help="For a process: trace each rank that it started, at the same time.")  # fmt: skip
@options.as_json
@options.implemented_by("trace")
def command() -> None:
    """Account for the time in a trace, or take one now.

    FILE is a trace of the PyTorch profiler (Kineto JSON), of JAX and TensorFlow (XPlane), or of
    Nsight Systems (nsys export --type sqlite), also with .gz. Every nanosecond of each device is
    compute, communication, copies, or idle by cause.

    Several files, or those in a folder DIR, are the ranks of one job: with the account of all of
    them it says which rank the others wait for, how long, and at what.

    A number that names no file is a PID: a short trace of that process is taken now, through the
    small agent that `monitor attach` also uses: it goes in for the trace, and out again.

    With --server nothing goes in: a JAX job that called jax.profiler.start_server(PORT) takes the
    trace itself. JAX takes one at a time: a start_trace by the job fails in that second, and during
    one of the job's own traces ours fails, with a line of jaxlib on the job's stderr.
    """

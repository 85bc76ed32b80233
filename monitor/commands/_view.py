"""``monitor trace view``: a trace in XProf, or as a file for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from whyidle.monitor.commands._carry import carried_out


@click.command()
@click.argument("file", metavar="FILE|RUN")
@click.option("--perfetto", "out", type=click.Path(path_type=Path), metavar="OUT",
              help="Write OUT (.json or .json.gz), which ui.perfetto.dev opens.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite OUT.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N",
              help="Where XProf listens on 127.0.0.1 (default: any free port).")  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@carried_out("trace_view")
def command() -> None:
    """Look at a trace in XProf (TensorBoard), or in Perfetto: a file, or the last one of a run.

    XProf opens XPlane files (JAX, TensorFlow); it runs until Ctrl-C, on this machine only. Perfetto
    opens what --perfetto writes from any trace: each device with a lane that says why it was idle.
    """

"""``monitor diagnose``: what is wrong in a recording, a trace file, or a running job."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.core.defaults import WATCH_SECONDS

LEVELS = ("high", "medium", "low", "info")
FORMATS = ("json", "sarif", "github", "markdown")


_EPILOG = """\b
The last recording:      monitor diagnose
A trace file:            monitor diagnose trace.json.gz
A hang of many ranks:    monitor diagnose DUMPS      (a folder of PyTorch's flight recorder)
A hang that is going on: monitor diagnose http://HOST:25999      (PyTorch's debug server)
In a test of your own:   monitor run -- python train.py && monitor diagnose last --fail-on medium
For a code host:         monitor diagnose last --format sarif > whyidle.sarif"""


@click.command(epilog=_EPILOG)
@click.argument("target", metavar="[RUN|FILE|PID|URL]", default="last")
@click.option("--fail-on", type=click.Choice(LEVELS), metavar="LEVEL",
              help="End with 1 if a finding is at least this severe: high, medium, low or info;"
              " else with 7 if it is not known where most of the time goes.")  # fmt: skip
@click.option("--seconds", type=options.Finite(min=0.0, min_open=True), metavar="S",
              help="Watch a process that is not being recorded for this long first"
              f" (default: {WATCH_SECONDS:g}).")  # fmt: skip
@click.option("--format", "written", type=click.Choice(FORMATS), metavar="FORMAT",
              help="Print it for others: json (as --json), sarif (2.1.0), github (annotations of"
              " GitHub Actions), markdown (a comment). Paths are those in the repository around"
              " the current folder.")  # fmt: skip
@click.option("--all", "everything", is_flag=True,
              help="Also all evidence, the names of the rules, how sure each finding is, and what"
              " was not checked.")  # fmt: skip
@options.as_json
@options.implemented_by("diagnose")
def command() -> None:
    """Say what costs a job its time, and what gives it back.

    It reads a recording (its number, its label, or `last`), a trace file, or a running process: at
    once if the process is being recorded, otherwise after watching it for a while. Findings come
    with their evidence, the line of your code, the fix, and the gain to expect; what could not be
    judged comes with what would allow it.
    """

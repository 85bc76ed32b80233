"""Standard output that is closed, or whose reader has gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys

import click

from whyidle.monitor.render.escape import printable


def mute() -> None:
    """Send what is left to say nowhere: Python must not complain of a lost reader while it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def open_what_is_closed() -> None:
    """Give a program that was started without output (``>&-``) one that leads nowhere."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that does not know a letter must not end a recording.
            stream.reconfigure(errors="replace")
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123  for as long as we run
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123


def say(what: str, next_step: str = "") -> None:
    """Tell the person, beside the output; where nobody listens, the exit code must do.

    It may hold a name that a job gave itself.
    """
    with contextlib.suppress(OSError):
        click.echo(f"monitor: {printable(what)}", err=True)
        if next_step:
            click.echo(f"  {printable(next_step)}", err=True)

"""Standard output that is closed, or whose reader is gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys

import click

from whyidle.monitor.render.escape import printable


def mute() -> None:
    """Discard further output, so that Python does not complain about a lost reader at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def open_what_is_closed() -> None:
    """Give a program that was started without output (``>&-``) a stream to nowhere."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal cannot encode must not end a recording.
            stream.reconfigure(errors="replace")
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123  for as long as we run
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123


def say(what: str, next_step: str = "") -> None:
    """Tell the user on stderr; if nobody reads it, the exit code has to do.

    The text may contain a name that a job gave itself.
    """
    with contextlib.suppress(OSError):
        click.echo(f"monitor: {printable(what)}", err=True)
        for line in next_step.splitlines():
            click.echo(f"  {printable(line)}", err=True)

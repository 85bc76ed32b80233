"""``monitor ps``: the jobs of this machine."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
The jobs of this machine:   monitor ps
For another program:        monitor ps --json"""


@click.command(epilog=_EPILOG)
@options.as_json
@options.implemented_by("ps")
def command() -> None:
    """List the jobs of this machine: who idles, can you attach.

    A job is a process on a GPU, or one that has JAX, PyTorch, TensorFlow or Julia loaded. It shows
    who runs it, on which GPUs, and how attaching would work (`monitor doctor PID` says why).
    """

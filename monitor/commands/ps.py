"""``monitor ps``: the jobs of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._carry import carried_out

if TYPE_CHECKING:
    pass


@click.command()
@options.as_json
@carried_out("ps")
def command() -> None:
    """List the jobs of this machine.

    A job is a process on a GPU, or one that has JAX, PyTorch, TensorFlow or Julia loaded. For each:
    who runs it, on which GPUs, and how attaching would go about it (`monitor doctor PID` says why).
    """

"""``monitor completion``: let a shell complete our commands."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

# Click asks for it by the first of the names, whichever was called.
_NAMES: Final = ("monitor", "whyidle")
_VARIABLE: Final = "_MONITOR_COMPLETE"


def run(*, shell: str) -> None:
    """Print click's own script for each of our names."""
    command = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  one of the three that the command knows
    for name in _NAMES:
        click.echo(kind(command, {}, name, _VARIABLE).source())

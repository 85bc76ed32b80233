"""``monitor top``: the jobs of this machine, live."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
Which GPUs idle, and why:   monitor top
Once, for a log:            monitor top | cat"""


@click.command(epilog=_EPILOG)
@click.option("--every", "seconds", type=options.Finite(0.5, 60.0), default=2.0, show_default=True,
              metavar="S", help="Refresh after this many seconds.")  # fmt: skip
@options.implemented_by("top")
def command() -> None:
    """Watch the jobs of this machine: which GPUs idle, and why.

    It is `monitor ps` that stays, with one more column: what each job loses most by, if it is being
    recorded (`monitor attach PID --background`). It enters nothing, and ends with Ctrl-C.
    """

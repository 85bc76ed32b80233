"""``monitor report``: one file about a recording, to send to someone."""

from __future__ import annotations

from pathlib import Path

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
A page to attach:        monitor report last                  (writes whyidle-run-7.html)
Text for an issue:       monitor report last --format markdown --out -
A flame graph:           monitor report last --format speedscope
A trace file:            monitor report trace.json.gz --out report.html"""
FORMATS = ("html", "markdown", "speedscope", "collapsed", "pprof")
_NAMES = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}."


@click.command(epilog=_EPILOG)
@click.argument("target", metavar="[RUN|FILE]", default="last")
@click.option("--format", "written", type=click.Choice(FORMATS), default="html",
              show_default=True, metavar="FORMAT", help=_NAMES)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="PATH",
              help="Write it there (default: whyidle-run-N...); - is stdout.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite it.")
@click.option("--no-code", is_flag=True, help="Leave out the text of your code.")
@options.implemented_by("report")
def command() -> None:
    """Write one file about a recording, to send to someone.

    It has all that is known of a job, for example to attach to an issue. It needs nothing else: no
    network, no other file. It has the account of a step, the findings with the lines of your code,
    what else the loop does, where the main thread was, and the environment. Secrets in the command
    and in the code are masked, and users and hosts are not named; look at it before you send it.

    The formats speedscope, collapsed and pprof hold the stacks of the main thread for other tools.
    Waits are among them, and what the thread does there stands on top of each stack.
    """

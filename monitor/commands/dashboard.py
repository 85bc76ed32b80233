"""``monitor dashboard``: what was recorded, and what runs, as a web page."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.core.defaults import LOOPBACK

_EPILOG = """\b
The newest recording:   monitor dashboard
One recording:          monitor dashboard 7
A recorded sample:      monitor dashboard --sample"""


@click.command(epilog=_EPILOG)
@click.argument("run", required=False, callback=options.text)
@click.option("--port", type=options.PORT, metavar="N",
              help="Where it listens (default: 8765 if that is free, else any).")  # fmt: skip
@click.option("--no-token", count=True, help="Let in everyone who can reach it.")
@click.option("--base-path", default="", metavar="/PATH", callback=options.text,
              help="Behind a reverse proxy: its path there.")  # fmt: skip
@click.option("--allow-host", multiple=True, metavar="NAME",
              help="Behind a reverse proxy: its name; may be repeated.")  # fmt: skip
@click.option("--address", default=LOOPBACK, show_default=True, metavar="A",
              help="Another address of this machine to listen on.")  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@click.option("--allow-actions", is_flag=True,
              help="Show buttons that try a change in the running job, and undo it.")  # fmt: skip
@click.option("--sample", is_flag=True, help="Show the sample runs that come with whyidle.")
@options.implemented_by("dashboard")
def command() -> None:
    """Show recordings, and what runs now, as a web page.

    Is the GPU busy, where does the time go, and what should be changed?

    It opens RUN (its number, its label, or `last`); you can choose any other there. Running
    recordings are shown live. Only those who have the printed link can open the page, on this
    machine; Ctrl-C ends it. From another machine, by ssh: ssh -L 8765:127.0.0.1:8765 HOST, then
    open the link.
    """

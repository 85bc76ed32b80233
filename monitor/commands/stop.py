"""``monitor stop``: end a recording that runs in the background."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options


@click.command()
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="End every recording of this machine.")
@options.as_json
def command(*, run: str | None, everything: bool, as_json: bool) -> None:
    """End a recording in the background.

    Without RUN the only one that runs. Tells what it saw; the job itself goes on.
    """
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.runs import running
    from whyidle.monitor.runs.summary import summarise

    for found in running.to_stop(database(), run, everything=everything):
        running.stop(found)
        options.tell(summarise(database(), str(found.id)), as_json=as_json)

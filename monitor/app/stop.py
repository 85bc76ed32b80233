"""``monitor stop``: end a recording that runs in the background."""

from __future__ import annotations

from whyidle.monitor.app.record import tell
from whyidle.monitor.core.paths import database
from whyidle.monitor.runs import running
from whyidle.monitor.runs.summary import summarise


def run(*, run: str | None, everything: bool, as_json: bool) -> None:
    """Carry out the command."""
    for found in running.to_stop(database(), run, everything=everything):
        running.stop(found)
        tell(summarise(database(), str(found.id)), as_json=as_json)

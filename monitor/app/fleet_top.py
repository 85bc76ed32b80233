"""``monitor fleet top``: what a fleet loses, and to whom."""

from __future__ import annotations

import click

from whyidle.monitor.core.contracts.fleet import Dimension
from whyidle.monitor.fleet import answer, windows
from whyidle.monitor.fleet.prometheus import Prometheus
from whyidle.monitor.fleet.queries import DIMENSIONS, Source
from whyidle.monitor.render import fleet as screen
from whyidle.monitor.render import jsonl


def run(
    *, url: str | None, since: str, by: tuple[Dimension, ...], counters: bool, as_json: bool
) -> None:
    """Ask once and show the answer."""
    seconds = windows.seconds(since)
    source: Source | None = "counters" if counters else None
    found = answer.ask(Prometheus.here(url), seconds, by or DIMENSIONS, source)
    if as_json:
        click.echo(jsonl.line(found))
        return
    for line in screen.lines(found, since.strip()):
        click.echo(line)

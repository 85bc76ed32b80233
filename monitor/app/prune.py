"""``monitor prune``: delete recordings and give the disk its space back."""

from __future__ import annotations

import sys

import click

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.render import jsonl, numbers
from whyidle.monitor.render.numbers import size
from whyidle.monitor.render.tables import table
from whyidle.monitor.runs import pruning
from whyidle.monitor.runs.pruning import Victim


def run(
    *,
    runs: tuple[str, ...],
    older_than: float | None,
    keep: int | None,
    max_size: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show what the limits leave out, and delete it once that is confirmed."""
    limits = pruning.Limits(runs, older_than, keep, max_size)
    if limits == pruning.Limits():
        raise UsageProblem(
            "Say what to delete.", "For instance: monitor prune --older-than 30d --dry-run"
        )
    victims = pruning.choose(database(), limits)
    if not as_json:
        click.echo(_listing(victims))
    freed = 0
    if victims and not dry_run:
        _confirm(len(victims), yes=yes)
        freed = pruning.delete(database(), [v.run.id for v in victims])
        if not as_json:
            click.echo(f"Deleted; the store is {numbers.size(freed)} smaller.")
    if as_json:
        deleted = [v.run.id for v in victims]
        click.echo(jsonl.line({"deleted": deleted, "dry_run": dry_run, "freed_bytes": freed}))


def _confirm(count: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblem(f"This would delete {count} recordings.", "Add --yes to do it.")
    click.confirm(f"Delete {count} recordings", abort=True, err=True)


def _listing(victims: list[Victim]) -> str:

    rows = [[str(v.run.id), size(v.size), v.reason, v.run.script or ""] for v in victims]
    return table(["run", "size", "why", "job"], rows, right="rr") if rows else "Nothing to delete."

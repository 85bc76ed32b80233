"""``monitor baseline``: recordings to hold later ones against."""

from __future__ import annotations

import time
from pathlib import Path

import click

from whyidle.monitor import compare
from whyidle.monitor.app.gate import folder
from whyidle.monitor.compare import baseline
from whyidle.monitor.compare.baseline import Baseline
from whyidle.monitor.core.contracts.comparison import BaselineJson
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.render import jsonl, numbers
from whyidle.monitor.render.budget import clock
from whyidle.monitor.render.console import say
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.tables import table
from whyidle.monitor.store import Reader


def save(*, name: str, runs: tuple[str, ...], newest: int | None, as_json: bool) -> None:
    """Write a baseline of recordings that have ended."""
    path = baseline.path_of(name, folder())
    sides = [compare.of_run(database(), str(run)) for run in _chosen(runs, newest)]
    baseline.save(path, sides)
    kept = baseline.load(name, folder())
    if as_json:
        click.echo(jsonl.line(_row(kept, path)))
        return
    what = ", ".join(side.label for side in kept.sides)
    click.echo(printable(f"Saved {what} as {name}: {path}"))
    for side in kept.sides:
        if side.pace is None:
            say(f"{side.label} has no steps ({side.why_no_pace}): only findings can be judged.")


def _chosen(runs: tuple[str, ...], newest: int | None) -> list[int]:
    """Return the recordings that are meant, each once."""
    if runs and newest is not None:
        raise UsageProblem("--newest and RUN both say which recordings.", "Give one of them.")
    with Reader.open(database()) as reader:
        if newest is None:
            found = [reader.find(ref) for ref in runs or ("last",)]
        else:
            found = reader.runs()[-newest:]
    for run in found:
        if run.is_recording:
            what = f"Run {run.id} is still being recorded."
            raise UsageProblem(what, f"End it first: monitor stop {run.id}")
        if run.exit_code:
            what = f"Run {run.id} is of a job that failed ({run.end_reason})."
            say(what, "Is it the program as it is good? Others are listed by: monitor runs")
    if newest is not None and len(found) < newest:
        raise UsageProblem(
            f"There are {len(found)} recordings, not {newest}.", "List them: monitor runs"
        )
    return list(dict.fromkeys(run.id for run in found))


def listing(*, as_json: bool) -> None:
    """Print the baselines that have a name; one that cannot be read is named on stderr."""
    rows = []
    for name in baseline.names(folder()):
        try:
            rows.append(_row(baseline.load(name, folder()), baseline.path_of(name, folder())))
        except (StorageProblem, UsageProblem) as problem:
            say(problem.what, problem.next_step)
    if as_json:
        click.echo(jsonl.listing("baselines", rows))
    elif not rows:
        click.echo("There are no baselines. Save one: monitor baseline save NAME")
    else:
        click.echo(table(("baseline", "saved", "step", "of"), [_cells(row) for row in rows]))


def _row(kept: Baseline, path: Path) -> BaselineJson:
    paces = sorted(side.pace.middle_ns for side in kept.sides if side.pace is not None)
    return BaselineJson(
        name=kept.name,
        path=str(path),
        saved_ms=kept.saved_ms,
        runs=[side.label for side in kept.sides],
        step_ns=paces[(len(paces) - 1) // 2] if paces else None,
    )


def _cells(row: BaselineJson) -> list[str]:
    saved = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.saved_ms / 1000))
    step = numbers.DASH if row.step_ns is None else clock(row.step_ns)
    return [row.name, saved, step, printable(", ".join(row.runs))]


def remove(*, name: str, as_json: bool) -> None:
    """Delete the file of a baseline, and of nothing else."""
    kept = baseline.load(name, folder())
    path = baseline.path_of(name, folder())
    try:
        path.unlink()
    except OSError as error:
        raise StorageProblem(
            f"{path} cannot be deleted: {error.strerror}.", f"See whose it is: ls -ld {path.parent}"
        ) from None
    if as_json:
        click.echo(jsonl.line(_row(kept, path)))
    else:
        click.echo(f"Deleted the baseline {name}.")

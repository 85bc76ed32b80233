"""``monitor run --gate``: hold what was recorded against a baseline."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import asdict

from whyidle.monitor import compare
from whyidle.monitor.app.launch import shell_code
from whyidle.monitor.compare import baseline, gate
from whyidle.monitor.compare.baseline import Baseline
from whyidle.monitor.compare.gate import Outcome
from whyidle.monitor.compare.pace import BETWEEN_RUNS
from whyidle.monitor.core.errors import Exit, NotJudged, Problem, UsageProblem
from whyidle.monitor.core.paths import database, state_dir
from whyidle.monitor.processes.job_end import in_words
from whyidle.monitor.render import github, jsonl
from whyidle.monitor.render.gate import failed_job, screen
from whyidle.monitor.render.places import Repository
from whyidle.monitor.runs.summary import RunSummary

FOLDER = "baselines"
LEAST = 100 * BETWEEN_RUNS
_CODES = {
    Outcome.PASSED: Exit.OK,
    Outcome.WORSE: Exit.WORSE,
    Outcome.NOT_JUDGED: Exit.NOT_JUDGED,
}


def folder() -> Path:
    """Return where the baselines with a name lie."""
    return state_dir() / FOLDER


def check_percent(percent: float | None) -> None:
    """Say before anything is read that so small a difference is never reported."""
    if percent is not None and percent < LEAST:
        raise UsageProblem(
            f"--fail-slower {percent:g} asks for too little: one program differs by {LEAST:g}% from"
            " run to run.",
            f"Allow that much, or more: --fail-slower {LEAST:g}",
        )


def opened(
    name: str, percent: float | None, cmd: Sequence[str], repeat: int, *, annotate: bool
) -> Gate:
    """Read a baseline before a job starts that nothing could be said of."""
    try:
        check_percent(percent)
        path = baseline.path_of(name, folder())
        if not path.exists():
            raise _no_baseline(name, path, cmd, repeat)
        return Gate(baseline.load(name, folder()), percent, annotate=annotate)
    except Problem as problem:
        if annotate:
            click.echo(github.of_problem(problem), err=True)
        raise


def _no_baseline(name: str, path: Path, cmd: Sequence[str], repeat: int) -> UsageProblem:
    several, newest = (f" --repeat {repeat}", f" --newest {repeat}") if repeat > 1 else ("", "")
    record = f"monitor run{several} -- {shlex.join(cmd)}"
    where = f" ({path})" if path.parent == folder() else ""
    return UsageProblem(
        f"There is no baseline '{name}' yet{where}, and the job was not started.",
        "Make it with the program as it is good:"
        f" {record} && monitor baseline save {shlex.quote(name)}{newest}",
    )


class Gate:
    """A baseline, and how to judge by it."""

    def __init__(self, kept: Baseline, allowed: float | None, *, annotate: bool) -> None:
        self._baseline = kept
        self._allowed = allowed
        # Before the job starts: it may delete the folder.
        self._repository = Repository.here() if annotate else None

    def job_failed(self, code: int) -> None:
        """Say that the job's own failure comes before all that could be judged."""
        how = in_words(code)
        click.echo(failed_job(self._baseline.name, how, shell_code(code)), err=True)
        if self._repository is not None:
            click.echo(github.of_failed_job(self._baseline.name, how), err=True)

    def judge(self, summaries: Sequence[RunSummary | None], *, as_json: bool) -> Exit:
        """Print what became of the program; return the exit code."""
        found = [summary for summary in summaries if summary is not None]
        if not found:
            raise NotJudged("Nothing was recorded to judge.", "See why above, or: monitor doctor")
        numbers = [summary.run.id for summary in found]
        sides = [compare.of_run(database(), str(number)) for number in numbers]
        judged = gate.judge(self._baseline.sides, sides, self._allowed)
        answer = gate.as_json(judged, self._baseline.name, numbers)
        summary = found[judged.speaks]
        if as_json:
            click.echo(jsonl.line(asdict(jsonl.summary_object(summary)) | {"gate": answer}))
        sys.stdout.flush()
        click.echo(screen(judged, answer, summary.diagnosis), err=True)
        if self._repository is not None and summary.diagnosis is not None:
            shown = github.of_gate(answer, summary.diagnosis, self._repository)
            click.echo("\n".join(shown), err=True)
        return _CODES[judged.outcome]

"""What can be tried: all knobs, and those that the findings of a job point to."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import click

from whyidle.monitor.app.windows import of_process
from whyidle.monitor.core.contracts.trying import KnobJson, SuggestedJson
from whyidle.monitor.core.errors import TargetGone, UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.processes.target import Target
from whyidle.monitor.render import trying as render
from whyidle.monitor.render.jsonl import line as json_line
from whyidle.monitor.store import Reader, Run, UnknownRun
from whyidle.monitor.trying.knobs import KNOBS, Knob, of_rule

SCHEMA: Final = 1


def show_all(*, as_json: bool) -> None:
    """Print every knob."""
    knobs = [_json(knob) for knob in KNOBS.values()]
    if as_json:
        click.echo(json_line({"schema": SCHEMA, "knobs": knobs}))
    else:
        click.echo("\n".join(render.knob_lines(knobs)))


def suggest_for(pid: str, *, as_json: bool) -> None:
    """Print the knobs that the findings of a job point to."""
    target = target_of(pid)
    found = diagnose(of_process(pid))
    some: list[SuggestedJson] = []
    for each in found.findings:
        knobs = of_rule(each.rule.id)
        gain = each.found.gain
        if knobs:
            some.append(
                SuggestedJson(
                    rule=each.rule.id,
                    title=each.found.title or each.rule.title,
                    gain=None if gain is None else [gain.low, gain.high],
                    knobs=[_json(knob) for knob in knobs],
                )
            )
    if as_json:
        click.echo(json_line({"schema": SCHEMA, "pid": target.pid, "suggested": some}))
    else:
        click.echo("\n".join(render.suggestions(pid, some)))


def _json(knob: Knob) -> KnobJson:
    return KnobJson(
        knob=knob.name,
        does=knob.does,
        takes=knob.takes,
        default=knob.default or None,
        needs=knob.needs,
        risk=knob.risk,
        undone=knob.undone,
        numerics=knob.numerics,
        rules=list(knob.rules),
    )


def target_of(pid: str) -> Target:
    """Return the process that is meant; who names a recording is told which job it is of."""
    try:
        return Target.named(pid)
    except (TargetGone, UsageProblem) as problem:
        run = _run_named(pid)
        if run is None:
            raise
        job = f"process {run.target_pid}" if run.target_pid else "no process"
        if run.target_pid is None or not run.is_recording:
            raise UsageProblem(
                f"{pid} is a recording, of {job}, and no process that runs.",
                "List the jobs with `monitor ps`, then: monitor try PID KNOB",
            ) from problem
        raise UsageProblem(
            f"{pid} is a recording: a knob is tried in its job, {job}.",
            f"Type: monitor try {run.target_pid} --suggest",
        ) from problem


def _run_named(text: str) -> Run | None:
    if not database().exists():
        return None
    with Reader.open(database()) as reader, suppress(UnknownRun):
        return reader.find(text)
    return None

"""``monitor diagnose``: what is wrong in a recording, a trace file, or a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._output import say
from whyidle.monitor.core.errors import Exit

if TYPE_CHECKING:
    from whyidle.monitor.signals.window import Window
    from whyidle.monitor.store import Reader

LEVELS = ("high", "medium", "low", "info")
# Of a process that nobody records: long enough for the agent, a trace, and some steps after it.
SECONDS = 30.0

_EPILOG = """\b
The last recording:      monitor diagnose
A trace file:            monitor diagnose trace.json.gz
In a test of your own:   monitor run -- python train.py && monitor diagnose last --fail-on medium"""


@click.command(epilog=_EPILOG)
@click.argument("target", metavar="[RUN|FILE|PID]", default="last")
@click.option("--fail-on", type=click.Choice(LEVELS), metavar="LEVEL",
              help="End with 1 where a finding is at least so severe: high, medium, low or"
              " info; else with 7 where it is not known where most of the time goes.")  # fmt: skip
@click.option("--seconds", type=options.Finite(min=0.0, min_open=True), metavar="S",
              help="Of a process that nobody records: watch it so long first"
              f" (default: {SECONDS:g}).")  # fmt: skip
@options.as_json
def command(*, target: str, fail_on: str | None, seconds: float | None, as_json: bool) -> None:
    """Say what costs a job its time, and what gives it back.

    Of a recording (its number, its label, or `last`), of a trace file, or of a running process: of
    one that is being recorded at once, of any other after it was watched for a while. Findings come
    with their evidence, the line of your code, the fix, and the gain to expect; what could not be
    judged comes with what would allow it.
    """
    from whyidle.monitor.core.finding import Severity
    from whyidle.monitor.diagnosis import diagnose

    found = diagnose.diagnose(_window(target, seconds))
    if as_json:
        from whyidle.monitor.render.jsonl import line

        click.echo(line(diagnose.as_json(found)))
    else:
        from whyidle.monitor.render.findings import screen

        click.echo(screen(found), color=True)
    if fail_on and found.worst and found.worst.rank <= Severity(fail_on).rank:
        raise SystemExit(Exit.FINDINGS)
    if fail_on and not found.is_known:
        raise diagnose.not_judged(found.window)


def _window(target: str, seconds: float | None) -> Window:
    """Return the window over what is meant: a file where there is one of that name."""
    from pathlib import Path

    from whyidle.monitor.core.errors import UsageProblem
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.signals import opening

    if _looks_like_a_file(target) and not Path(target).exists():
        raise UsageProblem(
            f"There is no file '{target}'.", "Say where it is: monitor diagnose PATH"
        )
    run = None if Path(target).is_file() else _recorded(target)
    is_process = run is None and not Path(target).is_file()
    if seconds is not None and not is_process:
        raise UsageProblem(
            "--seconds is for a process that nobody records, and this is none.",
            "Leave it out, or name a process: monitor diagnose PID --seconds 30",
        )
    if is_process:
        run = _watched(target, SECONDS if seconds is None else seconds)
    if run is not None:
        return opening.of_run(database(), run)
    from whyidle.monitor.commands.trace import analysis_of
    from whyidle.monitor.traces.answer import contract

    return opening.of_answer(contract(analysis_of(target)), Path(target).name)


def _looks_like_a_file(target: str) -> bool:
    return "/" in target or target.endswith((".gz", ".json", ".pb"))


def _recorded(target: str) -> str | None:
    """Return the run that is meant; ``None`` for a process of which there is no recording."""
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.store import Reader, UnknownRun

    if not database().exists():
        return None if target.isdecimal() else target
    with Reader.open(database()) as reader:
        if not target.isdecimal():
            return _named(reader, target)
        mine = [run for run in reader.runs() if run.target_pid == int(target) and run.is_recording]
        if mine:
            return str(mine[-1].id)
        try:
            return str(reader.find(target).id)
        except UnknownRun:
            return None


def _named(reader: Reader, target: str) -> str:
    from whyidle.monitor.core.errors import UsageProblem
    from whyidle.monitor.store import UnknownRun

    try:
        return str(reader.find(target).id)
    except UnknownRun:
        what = f"There is no recording and no file '{target}'."
        raise UsageProblem(what, "List the recordings: monitor runs") from None


def _watched(pid: str, seconds: float) -> str:
    """Watch a process for a while, and return the run that this has made."""
    import signal

    from whyidle.monitor.core.paths import database
    from whyidle.monitor.processes.process import find_target
    from whyidle.monitor.recording.recorder import Wanted
    from whyidle.monitor.recording.session import Session
    from whyidle.monitor.render.screens import Quiet

    target = find_target(pid)
    say(f"Nobody records process {pid}: watching it for {seconds:g} s.", "Ctrl-C ends that early.")
    session = Session(database(), Quiet())
    session.open_gpus()
    told = session.record(
        Wanted(target), seconds, stop_on=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    )
    return str(told.run.id)

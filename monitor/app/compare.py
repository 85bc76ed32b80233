"""``monitor compare``: two runs or traces side by side, before and after a change."""

from __future__ import annotations

from pathlib import Path

import click

from whyidle.monitor import compare
from whyidle.monitor.app.gate import check_percent
from whyidle.monitor.app.trace import analysis_of
from whyidle.monitor.app.windows import looks_like_a_file
from whyidle.monitor.compare import Comparison, Side, Verdict
from whyidle.monitor.compare.answer import as_json as answer
from whyidle.monitor.core.errors import Exit, NotJudged, UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.render.comparison import screen
from whyidle.monitor.render.console import say
from whyidle.monitor.render.jsonl import line
from whyidle.monitor.store import Reader, UnknownRun
from whyidle.monitor.traces.opening import identify


def run(*, a: str, b: str, fail_slower: float | None, as_json: bool) -> None:
    """Print the comparison; end as --fail-slower asks for."""
    check_percent(fail_slower)
    found = compare.compare(*sides(a, b))
    if as_json:
        click.echo(line(answer(found)))
    else:
        click.echo(screen(found), color=True)
    if fail_slower is not None:
        _judge(found, fail_slower)


def sides(a: str, b: str) -> tuple[Side, Side]:
    """Return both sides of a comparison; one run with itself is none."""
    _refuse_the_same(a, b)
    return _side(a, "A"), _side(b, "B")


def _judge(found: Comparison, percent: float) -> None:
    """End as a script asked for."""
    speedup = found.speedup
    if speedup is None or found.verdict in {Verdict.UNCERTAIN, Verdict.UNKNOWN}:
        what, again = "It is not known whether B is slower than A", "for longer"
        if found.why_uncertain:
            what, again = f"{what}: {found.why_uncertain}", "again, while nothing else runs"
        raise NotJudged(f"{what}.", f"Record both {again}: monitor run --label NAME -- CMD")
    slower = 100 * (1 / speedup.middle - 1)
    if found.verdict is Verdict.SLOWER and slower > percent:
        say(f"B is {slower:.1f}% slower than A; {percent:g}% are allowed.")
        raise SystemExit(Exit.FINDINGS)


def _side(target: str, name: str) -> Side:
    """Return what is meant: a file where there is one of that name, else a recording."""
    if Path(target).is_file():
        return compare.of_analysis(analysis_of(target))
    if looks_like_a_file(target):
        _refuse_a_folder(target, name)
    if looks_like_a_file(target):
        raise UsageProblem(
            f"{name}: there is no file '{target}'.",
            "Say where it is, or name a recording: monitor runs",
        )
    if not database().exists():
        _refuse_a_folder(target, name)
        raise UsageProblem(
            f"{name}: there is no recording and no file '{target}'.",
            "Nothing is recorded yet. Begin with: monitor attach PID",
        )
    return compare.of_run(database(), str(_number(target, name)))


def _refuse_a_folder(target: str, name: str) -> None:
    """Say which trace in it may be meant, as ``monitor trace`` does."""
    if not Path(target).is_dir():
        return
    try:
        identify(Path(target))
    except UsageProblem as problem:
        step = problem.next_step.replace("monitor trace ", "")
        raise UsageProblem(f"{name}: {problem.what}", step) from None


def _number(target: str, name: str) -> int:

    with Reader.open(database()) as reader:
        try:
            return reader.find(target).id
        except UnknownRun:
            _refuse_a_folder(target, name)
            what = f"{name}: there is no recording and no file '{target}'."
            raise UsageProblem(what, "List the recordings: monitor runs") from None


def _refuse_the_same(a: str, b: str) -> None:
    """Refuse it before anything is read: a thing beside itself shows no difference."""
    one, two = Path(a), Path(b)
    if one.is_file() and two.is_file():
        if one.samefile(two):
            raise UsageProblem(
                f"A and B are the same file, {a}.", "Name two: monitor compare BEFORE AFTER"
            )
        return
    if one.is_file() or two.is_file() or not database().exists():
        return
    # What is wrong with a name that looks like a file is said when it is opened.
    if any(map(looks_like_a_file, (a, b))):
        return
    if (run := _number(a, "A")) == _number(b, "B"):
        raise UsageProblem(
            f"A and B are the same recording, run {run}.", "List the recordings: monitor runs"
        )

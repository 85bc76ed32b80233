"""``monitor compare``: two runs or traces side by side, before and after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._output import say
from whyidle.monitor.errors import Exit

if TYPE_CHECKING:
    from whyidle.monitor.compare import Comparison, Side

_EPILOG = """\b
Two recordings:           monitor compare 3 last
Two traces:               monitor compare before.json.gz after.json.gz
In a test of your own:    monitor compare baseline last --fail-slower 5"""


@click.command(epilog=_EPILOG)
@click.argument("a")
@click.argument("b")
@click.option("--fail-slower", type=options.Finite(min=0.0), metavar="PERCENT",
              help="End with 1 where B is slower than A by more than so much, beyond noise; with 7"
              " where nobody can tell.")  # fmt: skip
@options.as_json
def command(*, a: str, b: str, fail_slower: float | None, as_json: bool) -> None:
    """Compare B with A: what got faster or slower, by how much beyond noise, and why.

    A and B are recordings (a number, a label, or `last`) or trace files. Times are those of a step,
    or, where the steps of one are not known, of a second. What chance leaves open stands in
    brackets: in 19 of 20 comparisons the truth lies between the two.
    """
    from whyidle.monitor import compare

    _refuse_the_same(a, b)
    found = compare.compare(_side(a, "A"), _side(b, "B"))
    if as_json:
        from whyidle.monitor.compare.answer import as_json as answer
        from whyidle.monitor.render.jsonl import line

        click.echo(line(answer(found)))
    else:
        from whyidle.monitor.render.comparison import screen

        click.echo(screen(found), color=True)
    if fail_slower is not None:
        _judge(found, fail_slower)


def _judge(found: Comparison, percent: float) -> None:
    """End as a script asked for."""
    from whyidle.monitor.compare import Verdict
    from whyidle.monitor.errors import NotJudged

    speedup = found.speedup
    if speedup is None or found.verdict in {Verdict.UNCERTAIN, Verdict.UNKNOWN}:
        raise NotJudged(
            "Whether B is slower than A cannot be told.",
            "Record both for longer: monitor run --label NAME -- CMD",
        )
    slower = 100 * (1 / speedup.middle - 1)
    if found.verdict is Verdict.SLOWER and slower > percent:
        say(f"B is {slower:.1f}% slower than A; {percent:g}% are allowed.")
        raise SystemExit(Exit.FINDINGS)


def _side(target: str, name: str) -> Side:
    """Return what is meant: a file where there is one of that name, else a recording."""
    from pathlib import Path

    from whyidle.monitor import compare
    from whyidle.monitor.commands.trace import analysis_of
    from whyidle.monitor.errors import UsageProblem
    from whyidle.monitor.state import database

    if Path(target).is_file():
        return compare.of_analysis(analysis_of(target))
    if _looks_like_a_file(target):
        raise UsageProblem(
            f"{name}: there is no file '{target}'.",
            "Say where it is, or name a recording: monitor runs",
        )
    if not database().exists():
        raise UsageProblem(
            f"{name}: there is no recording and no file '{target}'.",
            "Nothing is recorded yet. Begin with: monitor attach PID",
        )
    return compare.of_run(database(), str(_number(target, name)))


def _looks_like_a_file(target: str) -> bool:
    return "/" in target or target.endswith((".gz", ".json", ".pb"))


def _number(target: str, name: str) -> int:
    from whyidle.monitor.errors import UsageProblem
    from whyidle.monitor.state import database
    from whyidle.monitor.store import Reader, UnknownRun

    with Reader.open(database()) as reader:
        try:
            return reader.find(target).id
        except UnknownRun:
            what = f"{name}: there is no recording and no file '{target}'."
            raise UsageProblem(what, "List the recordings: monitor runs") from None


def _refuse_the_same(a: str, b: str) -> None:
    """Say so before anything is read: a thing beside itself shows no difference."""
    from pathlib import Path

    from whyidle.monitor.errors import UsageProblem
    from whyidle.monitor.state import database

    one, two = Path(a), Path(b)
    if one.is_file() and two.is_file():
        if one.samefile(two):
            raise UsageProblem(
                f"A and B are the same file, {a}.", "Name two: monitor compare BEFORE AFTER"
            )
        return
    if one.is_file() or two.is_file() or not database().exists():
        return
    # A name that looks like a file is told of when it is opened.
    if any(map(_looks_like_a_file, (a, b))):
        return
    if (run := _number(a, "A")) == _number(b, "B"):
        raise UsageProblem(
            f"A and B are the same recording, run {run}.", "List the recordings: monitor runs"
        )

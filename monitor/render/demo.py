"""The screens of ``monitor demo``: what was wrong, what was changed, and what that gave back."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from whyidle.monitor.demo.outcome import Half, Outcome
from whyidle.monitor.demo.pairs import INSTALL, WORDS, Pair, change, installed
from whyidle.monitor.render.brief import STYLES
from whyidle.monitor.render.budget import NARROWEST, bar, clock, named, share
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.grid import Column, grid
from whyidle.monitor.render.numbers import DASH
from whyidle.monitor.render.tables import table
from whyidle.monitor.render.trace import fitted
from whyidle.monitor.slices import Slice

_INDENT: Final = "  "
# More changed lines than these are counted.
MOST_CHANGED: Final = 14
_CLEAR: Final = "\r\033[K"
# A slice that has less on both sides has no line.
LEAST: Final = 0.01
# Of a bar of progress.
CELLS: Final = 20


class Progress:
    """What runs now and how far it is: one line that is drawn anew, or in a pipe one line a run."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._is_drawn = self._out.isatty()
        self._what, self._expected, self._shown = "", 1.0, False

    def begin(self, what: str, expected: float) -> None:
        """Tell what begins, and about how long it takes."""
        self._what, self._expected = printable(what), expected
        if self._is_drawn:
            self(0.0)
        else:
            self._out.write(f"{self._what}, about {expected:.0f} s\n")
            self._out.flush()

    def __call__(self, spent: float) -> None:
        """Show how far it is."""
        if not self._is_drawn:
            return
        done = min(1.0, spent / self._expected)
        full = round(CELLS * done)
        line = f"{'█' * full}{'·' * (CELLS - full)} {self._what}, {spent:.0f} s"
        width = Console(file=self._out).width
        self._out.write(f"{_CLEAR}{line[: max(1, width - 1)]}")
        self._out.flush()
        self._shown = True

    def end(self) -> None:
        """Take the line back."""
        if self._shown:
            self._out.write(_CLEAR)
            self._out.flush()
            self._shown = False


def listing(pairs: Sequence[Pair]) -> str:
    """Return one line a fault: what it trains, and for which frameworks."""
    rows: dict[str, list[Pair]] = {}
    for pair in pairs:
        rows.setdefault(pair.name, []).append(pair)
    cells = [
        (name, ", ".join(_framework(pair) for pair in found), _about(found[0]))
        for name, found in rows.items()
    ]
    lines = [_shortened(cells), "", "Run one: monitor demo FAULT"]
    lacking = sorted({p.framework for p in pairs if not installed(p.framework)})
    if lacking:
        names = " and ".join(WORDS[each] for each in lacking)
        lines.append(f"{names}: not installed here. Type: {INSTALL}")
    return "\n".join(lines)


def _framework(pair: Pair) -> str:
    name = WORDS[pair.framework]
    return name if installed(pair.framework) else f"({name})"


def _about(pair: Pair) -> str:
    return f"{' + '.join(pair.faults)}: {pair.about}" if pair.is_story else pair.about


def _shortened(cells: Sequence[tuple[str, str, str]]) -> str:
    """Return the table; a sentence is cut at its end."""
    titles = ("fault", "frameworks", "the job")
    room = Console().width - sum(max(len(c[i]) for c in (*cells, titles)) + 2 for i in (0, 1))
    rows = [(*c[:2], textwrap.shorten(c[2], max(12, room), placeholder=" ...")) for c in cells]
    return table(titles, rows)


def screen(outcome: Outcome, console: Console | None = None) -> str:
    """Return the page of one pair as text for this terminal."""
    console = console or Console(highlight=False)
    return fitted(console, page(outcome, max(console.width, NARROWEST)))


def page(outcome: Outcome, width: int) -> Group:
    """Return the parts of the page, an empty line between them."""
    pair = outcome.pair
    title = f"{pair.name}, {WORDS[pair.framework]}: {pair.about}"
    parts: list[RenderableType] = [
        Group(*_wrapped(title, width, indent="", style="bold")),
        Group(*_found(outcome, width)),
        Group(*_changed(pair, width)),
        Group(*_figures(outcome, width)),
        Group(*_verdict(outcome, width)),
    ]
    spaced = [part for each in parts for part in (each, Text(""))]
    return Group(*spaced[:-1])


def _found(outcome: Outcome, width: int) -> Iterator[Text]:
    """Tell the faults of the job before, with their lines and their fixes."""
    told = [found for rule in outcome.pair.faults if (found := outcome.before.of(rule))]
    yield Text("Found" if told else "Not found", style="bold")
    for each in told:
        line = Text(f"{_INDENT}{each['severity'].upper():<7}", STYLES[each["severity"]])
        line.append(f"{printable(each['title'])}  [{each['rule']}]")
        yield line
        for place in each["where"][:1]:
            file = PurePath(place["file"]).name
            yield from _wrapped(f"at {file}:{place['line']} in {place['function']}", width, 9)
        for fix in each["fixes"].values():
            yield from _wrapped(f"Fix: {fix['text']}", width, 9)
    for rule in outcome.pair.faults:
        if outcome.before.of(rule) is None:
            why = _why_not(outcome.before, rule)
            yield from _wrapped(f"{rule}{why}", width, 2)


def _why_not(side: Half, rule: str) -> str:
    needs = [each["needs"] for each in side.diagnosis["not_checked"] if each["rule"] == rule]
    return f": not checked, it needs {needs[0]}" if needs else ""


def _changed(pair: Pair, width: int) -> Iterator[Text]:
    """Show the lines that the fix takes away and adds."""
    yield Text("The fix, applied", style="bold")
    lines = change(pair)
    margin = min((len(x.text) - len(x.text.lstrip()) for x in lines if x.text.strip()), default=0)
    for each in lines[:MOST_CHANGED]:
        sign, style = ("+", "green") if each.is_new else ("-", "red")
        # Nothing of a fix is cut: what it adds is often at the end of a line.
        code = textwrap.wrap(
            printable(each.text[margin:]), max(NARROWEST, width - 10), drop_whitespace=False,
            subsequent_indent=_INDENT * 2,
        ) or [""]  # fmt: skip
        yield Text(f"{_INDENT}{each.line:4d} {sign} {code[0]}", style)
        yield from (Text(f"{'':9}{rest}", style) for rest in code[1:])
    if len(lines) > MOST_CHANGED:
        yield Text(f"{_INDENT}and {len(lines) - MOST_CHANGED} lines more", "dim")


def _figures(outcome: Outcome, width: int) -> Iterator[RenderableType]:
    """Show both sides' figures, and their budgets one under the other."""
    sides = (outcome.before, outcome.after)
    yield grid(
        [
            Column("", ["before", "after"], right=False),
            Column("a step", [_step(each) for each in sides]),
            Column("samples/s", [_samples(each) for each in sides]),
            Column("", ["", _gain(outcome)], right=False),
        ],
        width,
    )
    for name, side in zip(("before", "after "), sides, strict=True):
        budget = side.diagnosis["budget"]
        line = Text(f"{name}  ")
        if budget is None:
            yield line.append(str(side.diagnosis["unknown"]["budget"]))
        else:
            yield line.append_text(bar(budget, max(NARROWEST, width - len(line))))
    budgets = [side.diagnosis["budget"] for side in sides]
    if None not in budgets:
        yield _shares(budgets, width)


def _shares(budgets: Sequence[Mapping[str, Any]], width: int) -> Table:
    """Return what share of the time each slice has before and after, the largest first."""
    totals = [sum(budget["slices"].values()) for budget in budgets]
    shares = {
        part: [
            budget["slices"].get(part, 0) / total
            for budget, total in zip(budgets, totals, strict=True)
        ]
        for part in Slice
    }
    shown = sorted((p for p in Slice if max(shares[p]) >= LEAST), key=lambda p: -max(shares[p]))
    columns = [Column("", [named(part) for part in shown], right=False)]
    for i, name in enumerate(("before", "after")):
        columns.append(Column(name, [share(shares[part][i], 1) for part in shown]))
    return grid([*columns, Column("", [""] * len(shown))], width)


def _gain(outcome: Outcome) -> str:
    return "" if outcome.speedup is None else f"{outcome.speedup:.2f}x as fast"


def _step(side: Half) -> str:
    ms = side.watched.step_ms
    return DASH if ms is None else clock(ms * 1e6)


def _samples(side: Half) -> str:
    pace = side.watched.samples_per_s
    return DASH if pace is None else f"{pace:,.0f}"


def _verdict(outcome: Outcome, width: int) -> Iterator[Text]:
    """Put what was said beside what was measured."""
    yield from _row("predicted", _predicted(outcome), width)
    yield from _row("measured", _measured(outcome), width)
    yield from _row("gone", ", ".join(outcome.gone) or "none", width)
    for name, rules in (
        ("still there", outcome.left),
        ("new", outcome.new),
        ("not judged", outcome.not_judged),
    ):
        if rules:
            yield from _row(name, ", ".join(rules), width)


def _predicted(outcome: Outcome) -> str:
    if outcome.predicted is None:
        return outcome.unknown["predicted"]
    low, high = outcome.predicted
    return f"{low:.2f}x to {high:.2f}x faster"


def _measured(outcome: Outcome) -> str:
    low, middle, high = outcome.measured
    if middle is None:
        return outcome.unknown["measured"]
    verdict = _beside(outcome, middle)
    if low is None or high is None:
        return f"{middle:.2f}x{verdict} (no interval: {outcome.why_no_interval}; try --rounds 3)"
    return f"{middle:.2f}x{verdict} ({low:.2f}x to {high:.2f}x: {outcome.measured_over})"


def _beside(outcome: Outcome, measured: float) -> str:
    if outcome.predicted is None or outcome.is_as_predicted:
        return "" if outcome.predicted is None else ", as predicted"
    return f", {'less' if measured < outcome.predicted[0] else 'more'} than predicted"


def _row(name: str, text: str, width: int) -> Iterator[Text]:
    lines = textwrap.wrap(text, max(NARROWEST, width - 12)) or [""]
    yield Text(f"{name:<12}{lines[0]}")
    yield from (Text(f"{'':12}{line}") for line in lines[1:])


def _wrapped(
    text: str, width: int, spaces: int = 2, *, indent: str | None = None, style: str = ""
) -> Iterator[Text]:
    left = " " * spaces if indent is None else indent
    for line in textwrap.wrap(printable(text), max(NARROWEST, width - len(left))):
        yield Text(f"{left}{line}", style)


def closing(outcomes: Sequence[Outcome], commands: Sequence[str], store: Path) -> str:
    """Return what to try next: of the commands only those that there are."""
    lines = []
    if outcomes:
        a, b = (outcomes[-1].before.watched.run, outcomes[-1].after.watched.run)
        runs = [each.watched.run for o in outcomes for each in (o.before, o.after)]
        lines.append(f"Runs {min(runs)} to {max(runs)} are kept in {store.parent}.")
        lines.append(f"  {f'monitor diagnose {a}':<21}tells all that was found in one")
        if "compare" in commands:
            lines.append(f"  {f'monitor compare {a} {b}':<21}puts two side by side")
        if "dashboard" in commands:
            lines.append("  monitor dashboard    shows them as a page")
        lines.append("  monitor demo --list  names the other faults")
    lines.append("Next, a job of your own, that runs already:")
    lines.append("  monitor ps           lists what uses a GPU")
    lines.append("  monitor attach PID   tells what keeps its GPU waiting")
    return "\n".join(lines)

"""The screens of ``monitor demo``: what was wrong, what was changed, and what that gained."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.demo.outcome import Half, Outcome
from whyidle.monitor.demo.pairs import WORDS, Pair
from whyidle.monitor.demo.patch import changed
from whyidle.monitor.render.budget import (
    NARROW,
    NARROWEST,
    VISIBLE,
    bar,
    cells,
    clock,
    named,
    share,
    stretch,
    swatch,
    words,
)
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_lines import STYLES
from whyidle.monitor.render.finding_text import short
from whyidle.monitor.render.grid import Column, grid
from whyidle.monitor.render.numbers import DASH
from whyidle.monitor.render.trace import fitted

_INDENT: Final = "  "
# More changed lines than these are counted.
MOST_CHANGED: Final = 14
_CLEAR: Final = "\r\033[K"
# A slice below this on both sides gets no line.
LEAST: Final = 0.01
# Width of the progress bar.
CELLS: Final = 20


class Progress:
    """What runs now and how far it is: a line that is redrawn, or one line per run in a pipe."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._is_drawn = self._out.isatty()
        self._what, self._expected, self._shown = "", 1.0, False

    def begin(self, what: str, expected: float) -> None:
        """Show what begins, and about how long it takes."""
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
        """Erase the line."""
        if self._shown:
            self._out.write(_CLEAR)
            self._out.flush()
            self._shown = False


def screen(outcome: Outcome, console: Console | None = None) -> str:
    """Return the page of one demo pair as text for this terminal."""
    console = console or Console(highlight=False)
    return fitted(console, page(outcome, max(console.width, NARROWEST)))


def page(outcome: Outcome, width: int) -> Group:
    """Return the parts of the page, separated by empty lines."""
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
    """Show the faults of the job before the fix, with their lines and fixes."""
    findings = [found for rule in outcome.pair.faults if (found := outcome.before.of(rule))]
    yield Text("Found" if findings else "Not found", style="bold")
    for each in findings:
        line = Text(f"{_INDENT}{each.severity.upper():<7}", STYLES[each.severity])
        line.append(f"{printable(each.title)}  [{each.rule}]")
        yield line
        for place in each.where[:1]:
            yield from _wrapped(f"at {short(place)} in {place.function}", width, 9)
        for fix in each.fixes.values():
            yield from _wrapped(f"Fix: {fix.text}", width, 9)
    for rule in outcome.pair.faults:
        if outcome.before.of(rule) is None:
            why = _why_not(outcome.before, rule)
            yield from _wrapped(f"{rule}{why}", width, 2)


def _why_not(side: Half, rule: str) -> str:
    needs = [each.needs for each in side.diagnosis.not_checked if each.rule == rule]
    return f": not checked, it needs {needs[0]}" if needs else ""


def _changed(pair: Pair, width: int) -> Iterator[Text]:
    """Show the lines that the fix removes and adds."""
    yield Text("The fix, applied", style="bold")
    lines = changed(pair.fix)
    margin = min((len(x.text) - len(x.text.lstrip()) for x in lines if x.text.strip()), default=0)
    for each in lines[:MOST_CHANGED]:
        sign, style = ("+", "green") if each.is_new else ("-", "red")
        # Never cut a fix: what it adds is often at the end of a line.
        code = textwrap.wrap(
            printable(each.text[margin:]), max(NARROWEST, width - 10), drop_whitespace=False,
            subsequent_indent=_INDENT * 2,
        ) or [""]  # fmt: skip
        yield Text(f"{_INDENT}{each.line:4d} {sign} {code[0]}", style)
        yield from (Text(f"{'':9}{rest}", style) for rest in code[1:])
    if len(lines) > MOST_CHANGED:
        yield Text(f"{_INDENT}and {len(lines) - MOST_CHANGED} more lines", "dim")


def _figures(outcome: Outcome, width: int) -> Iterator[RenderableType]:
    """Show the figures of both sides, and their budgets one below the other."""
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
    work = outcome.work
    times = (1.0, 1.0) if work is None else work[1:]
    for name, side, ns in zip(("before", "after "), sides, times, strict=True):
        budget = side.diagnosis.budget
        line = Text(f"{name}  ")
        if budget is None:
            yield line.append(str(side.diagnosis.unknown["budget"]))
        else:
            room = max(NARROWEST, width - len(line))
            yield line.append_text(_scaled(budget, round(room * ns / max(times))))
    budgets = [side.diagnosis.budget for side in sides]
    known = [budget for budget in budgets if budget is not None]
    if len(known) == len(budgets):
        # An estimate covers the whole run with its start: its parts are not those of a step.
        is_rough = any(side.diagnosis.budget_source == "estimate" for side in sides)
        hidden = [side.diagnosis.not_measured for side in sides]
        yield _shares(known, hidden, None if is_rough else work, width)


def _scaled(budget: BudgetJson, room: int) -> Text:
    """Return a bar scaled to its time beside the other's; a short one has no labels."""
    if room >= NARROWEST:
        return bar(budget, room)
    line = Text(no_wrap=True, overflow="crop")
    total = sum(budget["slices"].values())
    # Each visible part needs at least one cell.
    parts = sum(ns >= VISIBLE * total for ns in budget["slices"].values() if ns)
    for part, length in cells(budget, max(room, parts)).items():
        line.append_text(stretch(part, length))
    return line


def _shares(
    budgets: Sequence[BudgetJson],
    hidden: Sequence[Mapping[str, str]],
    work: tuple[str, float, float] | None,
    width: int,
) -> Table:
    """Return what each slice takes before and after, in time if known, the largest first.

    A slice that is hidden on one side was not measured there, which does not mean zero.
    """
    totals = [sum(budget["slices"].values()) for budget in budgets]
    shares = {
        part: [
            budget["slices"].get(part, 0) / total
            for budget, total in zip(budgets, totals, strict=True)
        ]
        for part in Slice
    }
    times = work[1:] if work is not None else (1.0, 1.0)
    shown = [p for p in Slice if max(shares[p]) >= LEAST]
    shown.sort(key=lambda p: -max(x * ns for x, ns in zip(shares[p], times, strict=True)))
    names = [
        Text.assemble(swatch(p), f" {words(p)}") if width < NARROW else named(p) for p in shown
    ]
    columns = [Column("" if work is None else f"time of a {work[0]}", names, right=False)]
    sides = list(enumerate(("before", "after")))
    if work is not None:
        columns += [
            Column(side, [_time(p, shares[p][i] * times[i], hidden[i]) for p in shown])
            for i, side in sides
        ]
    columns += [
        Column(
            side if work is None else f"share {side}",
            [DASH if p in hidden[i] else share(shares[p][i], 1) for p in shown],
            spare=0 if work is None else 2 - i,
        )
        for i, side in sides
    ]
    return grid([*columns, Column("", [""] * len(shown))], width)


def _time(part: Slice, ns: float, hidden: Collection[str]) -> str:
    return DASH if part in hidden else clock(ns) if ns else "0"


def _gain(outcome: Outcome) -> str:
    return "" if outcome.speedup is None else much(outcome.speedup)


def much(speedup: float) -> str:
    """Return the speed-up or slow-down as a factor above one."""
    return f"{speedup:.2f}x faster" if speedup >= 1 else f"{1 / speedup:.2f}x slower"


def _step(side: Half) -> str:
    ms = side.watched.step_ms
    return DASH if ms is None else clock(ms * 1e6)


def _samples(side: Half) -> str:
    pace = side.watched.samples_per_s
    return DASH if pace is None else f"{pace:,.0f}"


def _verdict(outcome: Outcome, width: int) -> Iterator[Text]:
    """Show the prediction beside the measurement."""
    yield from _row("predicted", _predicted(outcome), width)
    yield from _row("measured", _measured(outcome), width)
    if outcome.waits is not None:
        yield from _row("", outcome.waits, width)
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
        return f"{much(middle)}{verdict} (no interval: {outcome.why_no_interval}; try --rounds 3)"
    return f"{much(middle)}{verdict} ({low:.2f}x to {high:.2f}x: {outcome.measured_over})"


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
    """Return what to try next, using only commands that exist."""
    kept, rows = "", []
    if outcomes:
        a, b = (outcomes[-1].before.watched.run, outcomes[-1].after.watched.run)
        runs = [each.watched.run for o in outcomes for each in (o.before, o.after)]
        kept = f"Runs {min(runs)} to {max(runs)} are stored in {store.parent}."
        rows.append((f"monitor diagnose {a}", "shows everything found in one run"))
        if "compare" in commands:
            rows.append((f"monitor compare {a} {b}", "shows two side by side"))
        if "dashboard" in commands:
            rows.append(("monitor dashboard", "shows them in the browser"))
        rows.append(("monitor demo --list", "lists the other faults"))
    own = [
        ("monitor ps", "lists what uses a GPU"),
        ("monitor attach PID", "shows what keeps its GPU waiting"),
    ]
    wide = max(len(line) for line, _ in (*rows, *own)) + 2
    next_lines, own_lines = (
        [f"  {line:<{wide}}{what}" for line, what in each] for each in (rows, own)
    )
    next_job = "Next, a job of your own that is already running:"
    lines = [*([kept] if kept else []), *next_lines, next_job, *own_lines]
    return "\n".join(lines)

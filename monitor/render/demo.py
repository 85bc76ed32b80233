"""The screens of ``monitor demo``: what was wrong, what was changed, and what that gave back."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.demo.outcome import Half, Outcome
from whyidle.monitor.demo.pairs import WORDS, Pair, change
from whyidle.monitor.render.brief import STYLES
from whyidle.monitor.render.budget import (
    NARROW,
    NARROWEST,
    VISIBLE,
    bar,
    cells,
    clock,
    named,
    share,
    swatch,
    words,
)
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.grid import Column, grid
from whyidle.monitor.render.numbers import DASH
from whyidle.monitor.render.trace import fitted

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
    work = outcome.work
    times = (1.0, 1.0) if work is None else work[1:]
    for name, side, ns in zip(("before", "after "), sides, times, strict=True):
        budget = side.diagnosis["budget"]
        line = Text(f"{name}  ")
        if budget is None:
            yield line.append(str(side.diagnosis["unknown"]["budget"]))
        else:
            room = max(NARROWEST, width - len(line))
            yield line.append_text(_scaled(budget, round(room * ns / max(times))))
    budgets = [side.diagnosis["budget"] for side in sides]
    known = [budget for budget in budgets if budget is not None]
    if len(known) == len(budgets):
        # An estimate is of the whole run, its start included: its parts are none of a step.
        is_rough = any(side.diagnosis["budget_source"] == "estimate" for side in sides)
        hidden = [side.diagnosis["not_measured"] for side in sides]
        yield _shares(known, hidden, None if is_rough else work, width)


def _scaled(budget: BudgetJson, room: int) -> Text:
    """Return a bar as long as its time beside the other's; a short one has no words."""
    if room >= NARROWEST:
        return bar(budget, room)
    line = Text(no_wrap=True, overflow="crop")
    total = sum(budget["slices"].values())
    # Each of these parts has a cell at least.
    parts = sum(ns >= VISIBLE * total for ns in budget["slices"].values() if ns)
    for part, length in cells(budget, max(room, parts)).items():
        glyph, fill = swatch(part)
        line.append(glyph * length, fill)
    return line


def _shares(
    budgets: Sequence[BudgetJson],
    hidden: Sequence[Mapping[str, str]],
    work: tuple[str, float, float] | None,
    width: int,
) -> Table:
    """Return what each slice takes before and after, in time where that is known, most first.

    A slice that is hidden on a side was not measured there: it is not nothing.
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
            Column(side, _times((shares[p][i], times[i]) for p in shown)) for i, side in sides
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


def _times(parts: Iterable[tuple[float, float]]) -> list[str]:
    return [clock(part * ns) if part else "0" for part, ns in parts]


def _gain(outcome: Outcome) -> str:
    return "" if outcome.speedup is None else much(outcome.speedup)


def much(speedup: float) -> str:
    """Return by how much it became faster, or slower: a number above one."""
    return f"{speedup:.2f}x faster" if speedup >= 1 else f"{1 / speedup:.2f}x slower"


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
    """Return what to try next: of the commands only those that there are."""
    kept, rows = "", []
    if outcomes:
        a, b = (outcomes[-1].before.watched.run, outcomes[-1].after.watched.run)
        runs = [each.watched.run for o in outcomes for each in (o.before, o.after)]
        kept = f"Runs {min(runs)} to {max(runs)} are kept in {store.parent}."
        rows.append((f"monitor diagnose {a}", "tells all that was found in one"))
        if "compare" in commands:
            rows.append((f"monitor compare {a} {b}", "puts two side by side"))
        if "dashboard" in commands:
            rows.append(("monitor dashboard", "shows them as a page"))
        rows.append(("monitor demo --list", "names the other faults"))
    own = [
        ("monitor ps", "lists what uses a GPU"),
        ("monitor attach PID", "tells what keeps its GPU waiting"),
    ]
    wide = max(len(line) for line, _ in (*rows, *own)) + 2
    told, after = ([f"  {line:<{wide}}{what}" for line, what in each] for each in (rows, own))
    next_job = "Next, a job of your own, that runs already:"
    lines = [*([kept] if kept else []), *told, next_job, *after]
    return "\n".join(lines)

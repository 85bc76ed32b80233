"""The screen of ``monitor compare``: the verdict first, then what changed most."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from whyidle.monitor.compare import Comparison, Side
from whyidle.monitor.compare.result import Fault, Pair, Took
from whyidle.monitor.compare.setup import UNFAIR
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.render import numbers
from whyidle.monitor.render.budget import NARROWEST, VISIBLE, bar, clock, share, swatch
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_lines import STYLES
from whyidle.monitor.render.grid import Column, grid
from whyidle.monitor.render.kernel_names import short_name
from whyidle.monitor.render.trace import fitted
from whyidle.monitor.render.verdict import floor, verdict

MOST_KERNELS: Final = 4


def screen(found: Comparison, *, console: Console | None = None) -> str:
    """Return the page as text for this terminal."""
    console = console or Console(highlight=False)
    return fitted(console, page(found, max(console.width, NARROWEST)))


def page(found: Comparison, width: int) -> Group:
    """Return the parts of the page, separated by empty lines."""
    parts: list[list[RenderableType]] = [
        [Text(verdict(found), "bold"), *_sides(found, width)],
        list(_slices(found, width)),
        list(_faults(found, width)),
        list(_kernels(found, width)),
        list(_figures(found, width)),
        [Text(line, "yellow") for said in found.warnings for line in _wrapped(f"! {said}", width)],
    ]
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [*part, Text("")] if part else []
    return Group(*spaced[:-1])


def _sides(found: Comparison, width: int) -> Iterator[Text]:
    for text in about(found):
        yield from (Text(line, "dim") for line in _wrapped(text, width))


def about(found: Comparison) -> Iterator[str]:
    """Yield what the two sides are, and why the verdict is no firmer."""
    for name, side, took in (("A", found.a, found.took_a), ("B", found.b, found.took_b)):
        yield f"{name}: {_said(side)}"
        if took is not None:
            yield f"   step: {_times(took)}"
    if found.why_uncertain:
        yield f"It is not certain: {found.why_uncertain}."
    if (least := floor(found)) is not None:
        yield least
    if found.why_per:
        yield f"Figures are per {found.per}: {found.why_per}."
    if found.steps is not None and found.steps.speedup.why_no_bounds:
        yield f"How certain it is cannot be said: {found.steps.speedup.why_no_bounds}."


def _said(side: Side) -> str:
    if side.pace is None:
        return f"{side.label}, steps not known"
    number = side.pace.steps
    count = "" if number is None else f"{number:,} {'step' if number == 1 else 'steps'}, "
    return f"{side.label}, {count}{side.pace.source}"


def _times(took: Took) -> str:
    """Return the step time in one line: the median and its bounds, the mean, the slow steps."""
    middle, parts = took.median, [f"median {clock(took.median.middle)}"]
    if middle.low is not None and middle.high is not None:
        parts = [f"median {_between(middle.low, middle.middle, middle.high)}"]
    if took.mean is not None:
        parts.append(f"mean {clock(took.mean.middle)}")
    if took.p95 is not None:
        parts.append(f"p95 {clock(took.p95)}")
    return ", ".join(parts)


def _between(low: float, middle: float, high: float) -> str:
    """Return a time and its bounds, with one unit if all share it."""
    written = [clock(each) for each in (low, middle, high)]
    if len({each.split()[-1] for each in written}) == 1:
        numbers_, unit = [each.split()[0] for each in written], written[0].split()[-1]
        return f"{numbers_[1]} [{numbers_[0]}, {numbers_[2]}] {unit}"
    return f"{written[1]} [{written[0]}, {written[2]}]"


# Where the time goes -----------------------------------------------------------------------------
def _slices(found: Comparison, width: int) -> Iterator[RenderableType]:
    longest = max((_whole(found, which) or 0.0 for which in "ab"), default=0.0)
    for name in ("a", "b"):
        whole = _whole(found, name)
        if whole is None or not longest:
            why = next((getattr(p.ns, f"why_{name}") for p in found.slices), None)
            yield from (Text(line) for line in _wrapped(f"{name.upper()} not known: {why}", width))
            continue
        slices = {str(p.slice): round(getattr(p.ns, name) or 0) for p in found.slices}
        room = max(NARROWEST, round((width - 2) * whole / longest))
        yield Text.assemble(f"{name.upper()} ", bar({"slices": slices, "details": {}}, room))
    if longest:
        yield _table(found, width)


def _whole(found: Comparison, which: str) -> float | None:
    times: list[float | None] = [getattr(part.ns, which) for part in found.slices]
    known = [each for each in times if each is not None]
    return sum(known) if known else None


def _table(found: Comparison, width: int) -> Table:
    """Return the slices that matter on either side, the largest change first."""
    shown = [p for p in found.slices if max(p.share.a or 0, p.share.b or 0) >= VISIBLE]
    shown.sort(key=lambda p: -abs((p.ns.b or 0.0) - (p.ns.a or 0.0)))
    columns = [
        Column(f"time of a {found.per}", [_named(p.slice) for p in shown], right=False),
        *_both([p.ns for p in shown], clock),
        Column("change", [signed(p.ns, clock) for p in shown], spare=1),
        Column("share A", [one(p.share.a, lambda v: share(v, 1)) for p in shown], spare=3),
        Column("share B", [one(p.share.b, lambda v: share(v, 1)) for p in shown], spare=2),
    ]
    return grid(columns, width)


def _named(part: Slice) -> Text:
    return Text.assemble(swatch(part), f" {LOOKS[part].words}")


def _both(pairs: Sequence[Pair], written: Callable[[float], str]) -> list[Column]:
    return [
        Column("A", [one(pair.a, written) for pair in pairs]),
        Column("B", [one(pair.b, written) for pair in pairs]),
    ]


def one(value: float | None, written: Callable[[float], str]) -> str:
    """Return a number as text; a dash if it is unknown."""
    return numbers.DASH if value is None else written(value) if value else "0"


def signed(pair: Pair, written: Callable[[float], str]) -> str:
    """Return by how much B is above or below A."""
    if (by := pair.change) is None:
        return numbers.DASH
    return f"{'+' if by > 0 else '-'}{written(abs(by))}" if by else "0"


# Findings ----------------------------------------------------------------------------------------
def _faults(found: Comparison, width: int) -> Iterator[Text]:
    for word, faults in (
        ("gone", found.faults.gone),
        ("new", found.faults.new),
        ("still", found.faults.kept),
    ):
        for fault in faults:
            yield from _fault(word, fault, width)
    for fault in found.faults.unknown:
        where = "A" if fault.a is None else "B"
        said = f"?     {fault.rule}: {fault.a or fault.b} on one side; {where} {fault.why_unknown}"
        yield from (Text(line, "dim") for line in _wrapped(said, width))


def _fault(word: str, fault: Fault, width: int) -> Iterator[Text]:
    severity = fault.b or fault.a or "info"
    moved = fault.a and fault.b and fault.a != fault.b
    weight = f"{fault.a} -> {severity}" if moved else f"{severity.upper():<6}"
    first, *others = textwrap.wrap(
        printable(f"{word:<6}{weight} {fault.rule}: {fault.title}"),
        width,
        subsequent_indent="      ",
    )
    line = Text(first)
    line.stylize(STYLES[severity], 6, 6 + len(weight))
    yield line
    yield from (Text(other) for other in others)


# What ran, and what it took ----------------------------------------------------------------------
def _kernels(found: Comparison, width: int) -> Iterator[RenderableType]:
    kernels = found.kernels
    if kernels.why_none:
        yield from (Text(x, "dim") for x in _wrapped(f"{lacking(found)}.", width))
        return
    shown = kernels.changed[:MOST_KERNELS]
    if not shown:
        return
    columns = [
        Column("change", [signed(k.ns, clock) for k in shown]),
        *_both([k.ns for k in shown], clock),
        Column(f"{kernels.what}, of a {found.per}", [short_name(k.name) for k in shown]),
    ]
    yield grid(columns, width)


def lacking(found: Comparison) -> str:
    """Say why no kernels are listed, in one sentence if copies lack for the same reason."""
    why, same = found.kernels.why_none or "", found.kernels.why_none == found.why_no_transfers
    return f"Kernels and copies: {why}" if same else f"Kernels: {why}"


def _figures(found: Comparison, width: int) -> Iterator[RenderableType]:
    rows: list[tuple[str, Pair, Callable[[float], str]]] = []
    for transfer in found.transfers:
        rows += [
            (f"copies {transfer.direction}", transfer.ns, clock),
            (f"bytes {transfer.direction}", transfer.bytes, numbers.size),
        ]
    levels = (pair for pair in found.memory if (pair.a, pair.b) != (None, None))
    rows += [(pair.name, pair, numbers.size) for pair in levels]
    if found.energy.a is not None or found.energy.b is not None:
        unit = found.energy.unit
        rows.append(("energy", found.energy, lambda joules: f"{joules:,.3g} {unit}"))
    if rows:
        columns = [
            Column("A", [one(pair.a, written) for _, pair, written in rows]),
            Column("B", [one(pair.b, written) for _, pair, written in rows]),
            Column("change", [signed(pair, written) for _, pair, written in rows]),
            Column("", [name for name, _, _ in rows]),
        ]
        yield grid(columns, width)
    if (why := no_energy(found.energy)) is not None:
        yield from (Text(line, "dim") for line in _wrapped(why, width))
    yield from _setup(found, width)


def no_energy(pair: Pair) -> str | None:
    """Say why the energy of both sides, or of one, is unknown."""
    if pair.why_a and pair.why_b:
        both = pair.why_a if pair.why_a == pair.why_b else f"A: {pair.why_a}; B: {pair.why_b}"
        return f"Energy is not known: {both}."
    if pair.why_a or pair.why_b:
        return f"Energy of {'A' if pair.why_a else 'B'} is not known: {pair.why_a or pair.why_b}."
    return None


def _setup(found: Comparison, width: int) -> Iterator[Text]:
    # Differences that make it unfair are warnings, further down.
    for each in (each for each in found.setup if each.name not in UNFAIR):
        said = f"{each.name}: {each.a} -> {each.b}"
        yield from (Text(line) for line in _wrapped(said, width))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width, subsequent_indent="  ") or [""]

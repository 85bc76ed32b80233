"""The screen of ``monitor compare``: the verdict first, then what changed, most first."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from whyidle.monitor.compare import Comparison, Side, Verdict
from whyidle.monitor.compare.bootstrap import Interval
from whyidle.monitor.compare.result import Fault, Pair
from whyidle.monitor.render import numbers
from whyidle.monitor.render.brief import STYLES
from whyidle.monitor.render.budget import NARROWEST, VISIBLE, bar, clock, share, swatch
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.grid import Column, grid
from whyidle.monitor.render.symbols import short_name
from whyidle.monitor.render.trace import fitted
from whyidle.monitor.slices import LOOKS, Slice

MOST_KERNELS: Final = 4
SAME: Final = "No difference beyond noise"


def screen(found: Comparison, *, console: Console | None = None) -> str:
    """Return the whole page as text for this terminal."""
    console = console or Console(highlight=False)
    return fitted(console, page(found, max(console.width, NARROWEST)))


def page(found: Comparison, width: int) -> Group:
    """Return the parts of the page, an empty line between them."""
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


def verdict(found: Comparison) -> str:
    """Return the sentence that a person in a hurry reads."""
    steps = found.steps
    if steps is None:
        return "Which of them is faster is not known; below it is told per second."
    on_average = " on average" if steps.by == "mean" else ""
    took = f"{found.per} {change(steps.a.middle, steps.b.middle, clock)}{on_average}"
    much, bounds = _factor(steps.speedup)
    match found.verdict:
        case Verdict.SAME:
            low, high = steps.speedup.low or 1.0, steps.speedup.high or 1.0
            return f"{SAME}: {took}, {steps.speedup.middle:.2f}x [{low:.2f}, {high:.2f}]"
        case Verdict.FASTER | Verdict.SLOWER:
            return f"B is {much} {bounds}: {took}"
        case _ if bounds:
            return f"{SAME} that could be told: {took}, perhaps {much} {bounds}"
        case _:
            return f"B looks {much}, not certain: {took}"


def _factor(speedup: Interval) -> tuple[str, str]:
    """Return by how much B is faster or slower, always as a number above one."""
    faster = speedup.middle >= 1
    much = speedup.middle if faster else 1 / speedup.middle
    word = "faster" if faster else "slower"
    if speedup.low is None or speedup.high is None:
        return f"{much:.2f}x {word}", ""
    low, high = speedup.low, speedup.high
    low, high = (low, high) if faster else (1 / high, 1 / low)
    return f"{much:.2f}x {word}", f"[{low:.2f}, {high:.2f}]"


def change(a: float, b: float, written: Callable[[float], str]) -> str:
    """Return both, the unit once where it is the same."""
    one, two = written(a), written(b)
    if " " in one and one.split()[-1] == two.split()[-1]:
        one = one.rsplit(" ", 1)[0]
    return f"{one} -> {two}"


def _sides(found: Comparison, width: int) -> Iterator[Text]:
    for name, side in (("A", found.a), ("B", found.b)):
        yield from (Text(line, "dim") for line in _wrapped(f"{name}: {_said(side)}", width))
    if found.why_per:
        unit = f"Told per {found.per}: {found.why_per}."
        yield from (Text(line, "dim") for line in _wrapped(unit, width))
    if found.steps is not None and found.steps.speedup.why_no_bounds:
        why = f"How certain it is cannot be told: {found.steps.speedup.why_no_bounds}."
        yield from (Text(line, "dim") for line in _wrapped(why, width))


def _said(side: Side) -> str:
    if side.pace is None:
        return f"{side.label}, steps not known"
    count = "" if side.pace.steps is None else f"{side.pace.steps:,} steps, "
    return f"{side.label}, {count}{side.pace.source}"


# Where the time goes -----------------------------------------------------------------------------
def _slices(found: Comparison, width: int) -> Iterator[RenderableType]:
    longest = max((_whole(found, which) or 0.0 for which in "ab"), default=0.0)
    for name in ("a", "b"):
        whole = _whole(found, name)
        if whole is None or not longest:
            why = next((getattr(p.ns, f"why_{name}") for p in found.slices), None)
            yield from (Text(line) for line in _wrapped(f"{name.upper()} not known: {why}", width))
            continue
        budget = {"slices": {p.slice: round(getattr(p.ns, name) or 0) for p in found.slices}}
        room = max(NARROWEST, round((width - 2) * whole / longest))
        yield Text.assemble(f"{name.upper()} ", bar(budget, room))
    if longest:
        yield _table(found, width)


def _whole(found: Comparison, which: str) -> float | None:
    times: list[float | None] = [getattr(part.ns, which) for part in found.slices]
    known = [each for each in times if each is not None]
    return sum(known) if known else None


def _table(found: Comparison, width: int) -> Table:
    """Return the slices that are a part to speak of on either side, the largest change first."""
    shown = [p for p in found.slices if max(p.share.a or 0, p.share.b or 0) >= VISIBLE]
    shown.sort(key=lambda p: -abs((p.ns.b or 0.0) - (p.ns.a or 0.0)))
    columns = [
        Column(f"time of a {found.per}", [_named(p.slice) for p in shown], right=False),
        *_both([p.ns for p in shown], clock),
        Column("change", [_signed(p.ns, clock) for p in shown], spare=1),
        Column("share A", [_one(p.share.a, lambda v: share(v, 1)) for p in shown], spare=3),
        Column("share B", [_one(p.share.b, lambda v: share(v, 1)) for p in shown], spare=2),
    ]
    return grid(columns, width)


def _named(part: Slice) -> Text:
    return Text.assemble(swatch(part), f" {LOOKS[part].words}")


def _both(pairs: Sequence[Pair], written: Callable[[float], str]) -> list[Column]:
    return [
        Column("A", [_one(pair.a, written) for pair in pairs]),
        Column("B", [_one(pair.b, written) for pair in pairs]),
    ]


def _one(value: float | None, written: Callable[[float], str]) -> str:
    return numbers.DASH if value is None else written(value) if value else "0"


def _signed(pair: Pair, written: Callable[[float], str]) -> str:
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
        yield from (_fault(word, fault, width) for fault in faults)
    for fault in found.faults.unknown:
        where = "A" if fault.a is None else "B"
        said = f"?     {fault.rule}: {fault.a or fault.b} on one side; {where} {fault.why_unknown}"
        yield from (Text(line, "dim") for line in _wrapped(said, width))


def _fault(word: str, fault: Fault, width: int) -> Text:
    severity = fault.b or fault.a or "info"
    moved = fault.a and fault.b and fault.a != fault.b
    line = Text(f"{word:<6}")
    line.append(
        f"{fault.a} -> {severity}  " if moved else f"{severity.upper():<7}", STYLES[severity]
    )
    line.append(printable(fault.title))
    line.append(f"  [{fault.rule}]", "dim")
    line.truncate(width, overflow="ellipsis")
    return line


# What ran, and what it took ----------------------------------------------------------------------
def _kernels(found: Comparison, width: int) -> Iterator[RenderableType]:
    kernels = found.kernels
    if kernels.why_none:
        yield from (Text(x, "dim") for x in _wrapped(f"Kernels: {kernels.why_none}.", width))
        return
    shown = kernels.changed[:MOST_KERNELS]
    if not shown:
        return
    columns = [
        Column("change", [_signed(k.ns, clock) for k in shown]),
        *_both([k.ns for k in shown], clock),
        Column(f"{kernels.what}, of a {found.per}", [short_name(k.name) for k in shown]),
    ]
    yield grid(columns, width)


def _figures(found: Comparison, width: int) -> Iterator[RenderableType]:
    rows: list[tuple[str, Pair, Callable[[float], str]]] = []
    for transfer in found.transfers:
        rows += [
            (f"copies {transfer.direction}", transfer.ns, clock),
            (f"bytes {transfer.direction}", transfer.bytes, numbers.size),
        ]
    rows += [(pair.name, pair, numbers.size) for pair in found.memory]
    if found.energy.a is not None or found.energy.b is not None:
        unit = found.energy.unit
        rows.append(("energy", found.energy, lambda joules: f"{joules:,.3g} {unit}"))
    if rows:
        columns = [
            Column("A", [_one(pair.a, written) for _, pair, written in rows]),
            Column("B", [_one(pair.b, written) for _, pair, written in rows]),
            Column("change", [_signed(pair, written) for _, pair, written in rows]),
            Column("", [name for name, _, _ in rows]),
        ]
        yield grid(columns, width)
    yield from _setup(found, width)


def _setup(found: Comparison, width: int) -> Iterator[Text]:
    for each in found.setup:
        said = f"{each.name}: {each.a} -> {each.b}"
        yield from (Text(line) for line in _wrapped(said, width))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width, subsequent_indent="  ") or [""]

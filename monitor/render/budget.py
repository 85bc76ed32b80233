"""A time budget on a screen: one bar, and what each part of it means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from rich.table import Table
from rich.text import Text

from whyidle.monitor.core.contracts.trace import AccountJson, BudgetJson, OwnerJson
from whyidle.monitor.core.slices import LOOKS, Slice, is_light
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.grid import Column, grid
from whyidle.monitor.render.numbers import DASH

# A smaller part gets no cell in the bar and no line in the legend.
VISIBLE: Final = 0.005
NARROWEST: Final = 20
# At this width or less, the last column has no room.
NARROW: Final = 50
_BLOCKS = "█▓▒·"
# Fills the idle parts after their letter, so that many cells are a shade and no word.
_SHADE = "░"
_BUILT_IN = re.compile(r"built-in (?:method|function) (\w+)")
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


def clock(ns: float) -> str:
    """Return a time with three digits, in the unit that suits it."""
    for size, unit in _UNITS:
        if ns >= size * 0.9995:
            value = ns / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:,.{digits}f} {unit}"
    return f"{ns:.0f} ns"


def share(part: float, whole: float) -> str:
    """Return a part of a whole in percent; anything above zero never shows as 0%."""
    if not whole:
        return DASH
    percent = 100 * part / whole
    if 0 < percent < 0.05:
        return "<0.1%"
    return f"{percent:.0f}%" if percent >= 9.95 or not percent else f"{percent:.1f}%"


def words(part: Slice) -> str:
    """Return the name of a slice within a sentence."""
    return LOOKS[part].words.removeprefix("idle: ")


def in_order(budget: AccountJson) -> list[tuple[Slice, int]]:
    """Return the slices that took time, the largest first."""
    found = [(s, ns) for s in Slice if (ns := budget["slices"].get(s, 0)) > 0]
    return sorted(found, key=lambda pair: -pair[1])


def _visible(budget: AccountJson) -> dict[Slice, int]:
    least = VISIBLE * sum(budget["slices"].values())
    return {s: budget["slices"][s] for s, ns in in_order(budget) if ns >= least}


def cells(budget: AccountJson, width: int) -> dict[Slice, int]:
    """Divide a width among the slices: every visible one gets a cell, and the sum is exact."""
    shown = _visible(budget)
    total = sum(shown.values())
    widths = {s: max(1, ns * width // total) for s, ns in shown.items()}
    while (spare := width - sum(widths.values())) != 0:
        owed = {s: ns * width - widths[s] * total for s, ns in shown.items()}
        if spare > 0:
            widths[max(owed, key=lambda s: owed[s])] += 1
        else:
            widths[min((s for s in owed if widths[s] > 1), key=lambda s: owed[s])] -= 1
    return {s: widths[s] for s in Slice if s in widths}


def bar(budget: AccountJson, width: int, *, labels: bool = True) -> Text:
    """Return the bar: slices in their fixed order, named where there is room."""
    total = sum(budget["slices"].values())
    line = Text(no_wrap=True, overflow="crop")
    for part, room in cells(budget, max(width, NARROWEST)).items():
        part_share = share(budget["slices"][part], total)
        names = (f" {words(part)} {part_share} ", f" {part_share} ") if labels else ()
        line.append_text(stretch(part, room, next((n for n in names if len(n) + 2 <= room), "")))
    return line


def stretch(part: Slice, room: int, label: str = "") -> Text:
    """Return a slice as so many cells: a shade in its colour, an idle one with its letter first."""
    glyph, style = swatch(part)
    colour = LOOKS[part].colour
    is_block = glyph in _BLOCKS
    shade = glyph if is_block else _SHADE
    left = (room - len(label)) // 2
    cells = f"{shade * left}{label}{shade * (room - left - len(label))}"
    if is_block:
        line = Text(cells, style)
    else:
        # One colour on itself: a terminal without colours shows the shade.
        line = Text.assemble((glyph, style), (cells[1:], f"{colour} on {colour}"))
    line.stylize(f"bold {_inked(colour)}", left, left + len(label))
    return line


def _inked(colour: str) -> str:
    """Return a text style that is readable on a colour."""
    return f"{'black' if is_light(colour) else 'white'} on {colour}"


def legend(
    budget: AccountJson, steps: BudgetJson | None, width: int, devices: int = 1
) -> list[Table | Text]:
    """Return one line per slice, the largest first: how much it is, and what most of it is.

    Several devices run a step side by side, so the cost of a step is their mean.
    """
    total = sum(budget["slices"].values())
    shown = _visible(budget)
    columns = [
        Column("", [named(s) for s in shown], right=False),
        Column("share", [share(ns, total) for ns in shown.values()]),
        Column("time", [clock(ns) for ns in shown.values()], spare=1),
    ]
    if steps and steps["steps"]:
        each = steps["steps"] * max(devices, 1)
        times = [clock(steps["slices"].get(s, 0) / each) for s in shown]
        columns.append(Column("a step", times, spare=2))
    mostly = [_largest(budget, s) for s in shown]
    table = grid([*columns, Column("mostly", mostly, spare=3 * (width < NARROW))], width)
    return [table, *_rest(budget, shown, total)]


def owners(budget: AccountJson, where: Sequence[OwnerJson], width: int) -> list[Table]:
    """Return for each slice the line of user code that causes most of it, if known."""
    most: dict[Slice, OwnerJson] = {}
    for place in where:
        part = Slice(place["slice"])
        if part not in most or place["ns"] > most[part]["ns"]:
            most[part] = place
    shown = [s for s in _visible(budget) if s in most]
    columns = [
        Column("", [named(s) for s in shown], right=False),
        Column("share", [_owned(most[s]) for s in shown], spare=1),
        Column("your code", [place_words(most[s]) for s in shown]),
    ]
    return [grid(columns, width)] if shown else []


def _owned(place: OwnerJson) -> str:
    return DASH if place.get("share") is None else share(place["share"], 1)


def named(part: Slice) -> Text:
    """Return a slice as the legend names it."""
    return Text.assemble(swatch(part), f" {LOOKS[part].words}")


def swatch(part: Slice) -> tuple[str, str]:
    """Return the glyph of a slice in the bar, and its style."""
    look = LOOKS[part]
    return look.glyph, look.colour if look.glyph in _BLOCKS else _inked(look.colour)


def _rest(budget: AccountJson, shown: Mapping[Slice, int], total: int) -> list[Text]:
    small = [f"{words(s)} {clock(ns)}" for s, ns in in_order(budget) if s not in shown]
    said = f"Below {share(VISIBLE * total, total)} each: {', '.join(small)}"
    return [Text(said, "dim")] if small else []


def _largest(budget: AccountJson, part: Slice) -> str:
    details = budget.get("details", {}).get(part) or {}
    if not details:
        return ""
    label, ns = max(details.items(), key=lambda pair: pair[1])
    much = "" if len(details) == 1 else f"{share(ns, sum(budget['slices'].values()))} "
    return printable(f"{much}{label}")


def place_words(place: OwnerJson) -> str:
    """Return a line of code; if only its function is known, the function comes first."""
    # The end of a path says more than its beginning.
    file = "/".join(PurePath(place["file"]).parts[-2:])
    line, function = f"{file}:{place['line']}", place.get("function") or ""
    if place.get("exact_line", True) or not function:
        return printable(f"{line} {function}".rstrip())
    # Name what it calls only if that takes most of the time.
    calls = [call for call in place.get("calls") or [] if 2 * call["ns"] > place["ns"]]
    called = f", in {_called(calls[0]['name'])}" if calls else ""
    return printable(f"{function}() of {line}{called}")


def _called(frame: str) -> str:
    """Return the function in a profiler's Python frame: ``a.py(5): f``, ``$a.py:5 f``."""
    built_in = _BUILT_IN.search(frame)
    return built_in[1] if built_in else (frame.split() or [""])[-1]

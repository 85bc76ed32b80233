"""Lines of a screen: cut to its width, aligned, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final

from rich.cells import cell_len
from rich.text import Text

GAP: Final = "  "
# Between two columns of a wide screen.
BETWEEN: Final = 3
# Columns of a label that stands before a part of the screen.
LABEL: Final = 9


def cut(line: Text, width: int) -> Text:
    """Return the line in so many columns; a cut shows."""
    line.truncate(max(0, width), overflow="ellipsis")
    return line


def ends(left: Text, right: str, width: int, style: str = "dim") -> Text:
    """Return a line with something at its right end, which is never cut."""
    room = width - cell_len(right) - len(GAP)
    line = cut(left, room if right else width)
    return line.append(" " * (width - line.cell_len - cell_len(right))).append(right, style)


def joined(parts: Iterable[Text | str], width: int) -> Text:
    """Return as many of these as fit into one line; the first ones matter most."""
    line = Text()
    for part in parts:
        gap = GAP if line else ""
        if line and line.cell_len + len(gap) + cell_len(str(part)) > width:
            break
        line.append(gap)
        line.append_text(part if isinstance(part, Text) else Text(part))
    return cut(line, width)


def wrapped(entries: Sequence[Text], width: int) -> list[Text]:
    """Return these side by side in as many lines as they need, none broken."""
    lines = [Text()]
    for each in entries:
        if lines[-1] and lines[-1].cell_len + len(GAP) + each.cell_len > width:
            lines.append(Text())
        lines[-1].append(GAP if lines[-1] else "").append_text(each)
    return [cut(line, width) for line in lines if line]


def aligned(rows: Sequence[Sequence[Text | str]], width: int, left: int = 1) -> list[Text]:
    """Return rows in columns, the first ``left`` of them left-aligned; what is too wide is cut."""
    widths = [max(cell_len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        line = Text()
        for place, (cell, room) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (room - cell_len(str(cell)))
            line.append(GAP if place else "")
            line.append("" if place < left else blank)
            line.append_text(cell if isinstance(cell, Text) else Text(cell))
            line.append(blank if place < left else "")
        line.rstrip()
        lines.append(cut(line, width))
    return lines


def beside(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Return two columns side by side; ``width`` is that of the left one."""
    lines = []
    for one, other in zip_longest(left, right, fillvalue=Text()):
        line = one.copy()
        line.append(" " * (width - line.cell_len + BETWEEN))
        lines.append(line.append_text(other))
    return lines

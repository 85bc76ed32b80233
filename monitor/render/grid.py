"""Columns side by side in the width of a terminal: figures are whole, or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

GAP: Final = 2
# The last column holds names and may be cut, down to this.
LEAST: Final = 24


@dataclass(frozen=True, slots=True)
class Column:
    """A title over cells; if space is short, the highest ``spare`` goes first."""

    title: str
    cells: Sequence[str | Text]
    right: bool = True
    spare: int = 0  # never

    @property
    def width(self) -> int:
        """The width of the widest cell."""
        return max(cell_len(str(c)) for c in (self.title, *self.cells))


def grid(columns: Sequence[Column], width: int) -> Table:
    """Return a table; columns that do not fit beside the last one are left out, never cut."""
    shown = list(columns)
    while sum(c.width + GAP for c in shown[:-1]) + min(LEAST, shown[-1].width) > width:
        spare = max(shown, key=lambda c: c.spare)
        if not spare.spare:
            break
        shown.remove(spare)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for column in shown[:-1]:
        side: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(column.title, justify=side, no_wrap=True, width=column.width)
    room = max(1, width - sum(c.width + GAP for c in shown[:-1]))
    table.add_column(shown[-1].title, no_wrap=True, overflow="ellipsis", max_width=room)
    for row in zip(*(c.cells for c in shown), strict=True):
        # Names come from the file, so no cell may be read as markup.
        table.add_row(*(Text(c) if isinstance(c, str) else c for c in row))
    return table

"""Tables for lists: aligned columns that fit the terminal, plain in a pipe."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from whyidle.monitor.render.escape import printable

GAP = "  "


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: str = "", sentence: bool = False
) -> str:
    """Return rows under their titles; the last column is cut to the terminal's width.

    It is cut on the left, since the end of a path says more than its beginning; a sentence on the
    right.

    ``right`` has one letter per column: ``r`` aligns it right.
    """
    clean = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max(len(t), *(len(r[i]) for r in clean)) if clean else len(t) for i, t in enumerate(titles)
    ]
    room = (
        shutil.get_terminal_size((100, 24)).columns
        - sum(widths[:-1])
        - len(GAP) * (len(titles) - 1)
    )
    last = max(12, min(widths[-1], room))
    lines = []
    for row in [list(titles), *clean]:
        cells = [
            cell.rjust(width) if right[i : i + 1] == "r" else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row[:-1], widths[:-1], strict=True))
        ]
        tail = row[-1]
        if len(tail) > last:
            tail = f"{tail[: last - 1]}…" if sentence else "…" + tail[1 - last :]
        lines.append(GAP.join([*cells, tail]).rstrip())
    return "\n".join(lines)

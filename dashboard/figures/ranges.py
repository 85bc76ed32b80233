"""Ranges of speed-ups, one below the other: the gain of each fix, predicted and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.findings import Range

ROW_HEIGHT: Final = 34
# Longer names leave no room for the ranges.
_LONGEST: Final = 60


def ranges(name: str, shown: Sequence[Range]) -> Figure:
    """Return a bar per range on one scale of speed-ups, where 1 is the current speed."""
    rows = list(range(len(shown)))
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": rows,
        "base": [each.low for each in shown],
        # A range of no width stays visible.
        "x": [max(each.high - each.low, 0.01) for each in shown],
        "width": 0.55,
        "marker": {"color": [each.colour for each in shown]},
        "text": [_words(each) for each in shown],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{text}<extra></extra>",
    }
    known = [(row, each) for row, each in zip(rows, shown, strict=True) if each.middle is not None]
    middles = {
        "type": "scatter",
        "mode": "markers",
        "y": [row for row, _ in known],
        "x": [each.middle for _, each in known],
        "marker": {"symbol": "diamond", "size": 9, "color": theme.SLATE},
        "hovertemplate": "%{x:.2f}x<extra></extra>",
    }
    return base.figure([bars, middles] if known else [bars], _layout(name, shown))


def height(shown: Sequence[Range]) -> int:
    """Return the height of such a chart."""
    return 44 + ROW_HEIGHT * len(shown)


def _layout(name: str, shown: Sequence[Range]) -> dict[str, Any]:
    least = min([1.0, *(each.low for each in shown)])
    most = max([1.0, *(each.high for each in shown)])
    now = {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper",
           "line": {"color": theme.GREY, "width": 1, "dash": "dot"}}  # fmt: skip
    room = most - least or 0.1
    return base.layout(
        name,
        showlegend=False,
        hovermode="closest",
        dragmode=False,
        shapes=[now],
        xaxis={"range": [least - 0.03 * room, most + 0.28 * room], "ticksuffix": "x",
               "fixedrange": True, "nticks": 6, "zeroline": False},
        yaxis={"automargin": True, "range": [len(shown) - 0.5, -0.5], "fixedrange": True,
               "showgrid": False, "zeroline": False, "tickvals": list(range(len(shown))),
               "ticktext": [_short(each.name) for each in shown]},
        margin={"l": 8, "r": 8, "t": 4, "b": 26},
    )  # fmt: skip


def _words(shown: Range) -> str:
    if shown.middle is not None:
        return f"{shown.middle:.2f}x ({shown.low:.2f}x to {shown.high:.2f}x)"
    return f"{shown.low:.2f}x to {shown.high:.2f}x"


def _short(words: str) -> str:
    return base.plain(words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…")

"""Where the time of two runs goes: both budgets on one scale, and the change of each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from whyidle.dashboard import theme
from whyidle.dashboard.figures import account, base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.comparison import Better, Change
from whyidle.monitor.core.slices import Slice

ROW_HEIGHT: Final = 30
# The scale of changes covers at least this share of the whole.
LEAST_SCALE: Final = 0.1
_COLOURS: Final[dict[Better, str]] = {"better": theme.BETTER, "worse": theme.WORSE}
_WORDS: Final[dict[Better, str]] = {"better": "less: better", "worse": "more: worse"}


def budgets(name: str, sides: Mapping[str, Mapping[Slice, float]]) -> Figure:
    """Return the time of each side as a bar, on one scale: the shorter side is faster."""
    shape = base.layout(
        name,
        barmode="stack",
        hovermode="closest",
        dragmode=False,
        bargap=0.25,
        xaxis={**base.value_axis("seconds"), "fixedrange": True},
        yaxis={"automargin": True, "fixedrange": True, "autorange": "reversed", "showgrid": False},
        margin={"l": 8, "r": 8, "t": 30, "b": 26},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    )
    return base.figure(account.bars(sides, "%{x:.3~s}s, %{customdata:.1%}"), shape)


def changes(name: str, shown: Sequence[Change], whole: float) -> Figure:
    """Return the change of each part: to the left is less, which is better.

    The scale makes a change look as small as it is beside the whole.
    """
    known = [each for each in shown if each.seconds is not None]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [each.name for each in known],
        "x": [each.seconds for each in known],
        "marker": {"color": [_COLOURS.get(each.is_, theme.GREY) for each in known]},
        "text": [each.change for each in known],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [f"{each.a} → {each.b} {_WORDS.get(each.is_, '')}" for each in known],
        "hovertemplate": "%{y}: %{customdata}<extra></extra>",
    }
    most = max([LEAST_SCALE * whole, *(abs(each.seconds or 0.0) for each in known)]) or 1.0
    shape = base.layout(
        name,
        showlegend=False,
        hovermode="closest",
        dragmode=False,
        bargap=0.3,
        xaxis={"tickformat": "~s", "ticksuffix": "s", "range": [-1.35 * most, 1.35 * most],
               "fixedrange": True, "zeroline": True, "nticks": 7},
        yaxis={"automargin": True, "fixedrange": True, "autorange": "reversed", "showgrid": False},
        margin={"l": 8, "r": 8, "t": 4, "b": 26},
    )  # fmt: skip
    return base.figure([bars], shape)


def height(shown: Sequence[Change]) -> int:
    """Return the height of such a chart."""
    return 44 + ROW_HEIGHT * max(1, sum(each.seconds is not None for each in shown))

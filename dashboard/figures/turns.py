"""Blocks of steps with a change and without, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.tries import Pair


def turns(name: str, pairs: Sequence[Pair], most: int | None) -> Figure:
    """Return a chart of what a step took in each block."""
    numbers = [pair.number for pair in pairs]
    traces = [
        _series("without it", numbers, [pair.without_s for pair in pairs], theme.MIST),
        _series("with it", numbers, [pair.with_s for pair in pairs], theme.SLATE),
    ]
    last = max([most or 0, *numbers, 1])
    shape = base.layout(
        name,
        xaxis={"title": {"text": "pair of blocks"}, "range": [0.5, last + 0.5], "nticks": 8,
               "showgrid": False, "zeroline": False},
        yaxis=base.value_axis("seconds"),
        margin={"l": 70, "r": 12, "t": 28, "b": 44},
    )  # fmt: skip
    return base.figure(traces, shape)


def _series(name: str, x: Sequence[int], y: Sequence[float], colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "width": 1},
        "marker": {"color": colour, "size": 8},
        "hovertemplate": "%{y:.4~s}s a step<extra>%{fullData.name}</extra>",
    }

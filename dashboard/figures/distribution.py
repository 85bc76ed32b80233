"""The distribution of step times of two runs, overlaid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.comparison import Distribution

BINS: Final = 40
# Steps beyond this quantile are counted in the last bin, to leave room for the others.
_SHOWN: Final = 0.99
COLOURS: Final = (theme.MIST, theme.SLATE)


def steps(name: str, sides: Sequence[Distribution]) -> Figure:
    """Return the share of steps by duration, with a line for the mean and a band for its bounds."""
    edges = _edges(sides)
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    width = float(edges[1] - edges[0])
    traces = []
    for each, colour in zip(sides, COLOURS, strict=False):
        values = np.minimum(each.values, middles[-1])
        counts, _ = np.histogram(values, edges, weights=each.weights)
        traces.append(
            {
                "type": "bar",
                "name": base.plain(each.name),
                "x": middles,
                "y": (counts / counts.sum()).round(6).tolist(),
                "width": width,
                "opacity": 0.7,
                "marker": {"color": colour, "line": {"width": 0}},
                "hovertemplate": "%{y:.1%} of the steps at about %{x:.3~s}s",
            }
        )
    shape = base.layout(
        name,
        barmode="overlay",
        bargap=0,
        shapes=[mark for i, each in enumerate(sides[:2]) for mark in _mean(each, COLOURS[i])],
        xaxis={**base.value_axis("seconds"), "rangemode": "normal", "showgrid": False},
        yaxis={"tickformat": ".0%", "nticks": 4, "rangemode": "tozero", "zeroline": False},
    )
    return base.figure(traces, shape)


def _edges(sides: Sequence[Distribution]) -> Any:
    low = min(min(each.values) for each in sides)
    high = max(_quantile(each, _SHOWN) for each in sides)
    if high - low < 0.01 * high:
        # All steps are alike: draw one bar in the middle.
        low, high = 0.95 * low, 1.05 * high
    return np.linspace(low, high, BINS + 1)


def _quantile(side: Distribution, share: float) -> float:
    order = np.argsort(side.values)
    reached = np.cumsum(np.asarray(side.weights)[order])
    return float(np.asarray(side.values)[order][np.searchsorted(reached, share * reached[-1])])


def _mean(side: Distribution, colour: str) -> list[dict[str, Any]]:
    line = {"type": "line", "x0": side.mean, "x1": side.mean, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": colour, "width": 2}}  # fmt: skip
    if side.low is None or side.high is None:
        return [line]
    band = {"type": "rect", "x0": side.low, "x1": side.high, "y0": 0, "y1": 1, "yref": "paper",
            "fillcolor": colour, "opacity": 0.16, "line": {"width": 0}}  # fmt: skip
    return [band, line]

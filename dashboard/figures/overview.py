"""The whole trace as areas by cause, above the lanes of the shown window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.timeline import TickRange, ns
from whyidle.dashboard.views.timeline_overview import Overview
from whyidle.monitor.core.slices import LOOKS
from whyidle.monitor.store.stored_traces import KeptTrace

# Margins; the lanes below have the same, so that times line up.
LEFT: Final = 176
RIGHT: Final = 10
# The text in a blank part of the chart, if that takes at least this share.
NOTHING: Final = "no device work recorded"
_ROOM: Final = 0.2
_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def overview(name: str, data: Overview, trace: KeptTrace, shown: TickRange) -> Figure:
    """Return the whole trace as areas by cause, with the shown window highlighted."""
    size, suffix = unit_of(trace, TickRange(data.edges[0], data.edges[-1]))

    def x(at: int) -> float:
        return (at - trace.start) / trace.ticks_per_ns / size

    edges = [x(at) for at in data.edges]
    traces = [
        {
            "type": "scatter", "mode": "lines", "stackgroup": "time", "name": LOOKS[part].words,
            "x": edges, "y": [round(value, 4) for value in (*values, values[-1])],
            "line": {"width": 0, "shape": "hv", "color": theme.CAUSES[part]},
            "fillcolor": theme.CAUSES[part], "hovertemplate": "%{y:.0%}",
        }
        for part, values in data.parts.items()
    ]  # fmt: skip
    start, end = x(shown.start), x(shown.end)
    veil = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0},
            "fillcolor": "rgba(128,128,128,0.55)"}  # fmt: skip
    sides = [(edges[0], start), (end, edges[-1])]
    shape = base.layout(
        name, showlegend=False, shapes=[{**veil, "x0": a, "x1": b} for a, b in sides if b > a],
        xaxis={"range": [edges[0], edges[-1]], "ticksuffix": f" {suffix}", "nticks": 9,
               "showgrid": False, "zeroline": False},
        yaxis={"range": [0, 1], "visible": False, "fixedrange": True},
        annotations=list(_blanks(data, x)),
        margin={"l": LEFT, "r": RIGHT, "t": 2, "b": 22},
    )  # fmt: skip
    return base.figure(traces, shape)


def _blanks(data: Overview, x: Callable[[int], float]) -> Iterator[dict[str, Any]]:
    """Label the blank parts of the chart."""
    if data.known is None:
        return
    first, last = data.edges[0], data.edges[-1]
    for start, end in ((first, data.known[0]), (data.known[1], last)):
        if end - start > _ROOM * (last - first):
            yield {"text": NOTHING, "x": (x(start) + x(end)) / 2, "y": 0.5, "yref": "paper",
                   "showarrow": False, "font": {"size": 11}}  # fmt: skip


def unit_of(trace: KeptTrace, part: TickRange) -> tuple[float, str]:
    """Return the unit in which a window is drawn: nanoseconds per unit, and its name."""
    long = ns(trace, part.ticks)
    return next((size, name) for size, name in _UNITS if long >= 2 * size or size == 1)

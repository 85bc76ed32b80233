"""What all charts share: margins, axes, and number formats."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

from whyidle.dashboard.views.time_range import TimeRange, local
from whyidle.monitor.core.metrics import Unit
from whyidle.monitor.render.escape import printable

Figure = dict[str, Any]
COUNTS: Final = ",.4~r"
# How an axis and the hover label show a unit.
_AXES: Final[dict[Unit, dict[str, Any]]] = {
    "ratio": {"tickformat": ".0%", "range": [0, 1.02]},
    "bytes": {"tickformat": "~s", "ticksuffix": "B"},
    "bytes_per_second": {"tickformat": "~s", "ticksuffix": "B/s"},
    # Rates need no milli prefix: half a step per second is 0.5, not 500 milli.
    "per_second": {"tickformat": COUNTS, "ticksuffix": "/s"},
    "count": {"tickformat": COUNTS},
    "seconds": {"tickformat": "~s", "ticksuffix": "s"},
    "watts": {"tickformat": "~s", "ticksuffix": " W"},
    "cores": {"tickformat": ".2~f"},
}
# An axis shows the day only where it changes.
_CLOCK: Final = [
    {"dtickrange": [None, 59_999], "value": "%H:%M:%S"},
    {"dtickrange": [60_000, 86_399_999], "value": "%H:%M"},
    {"dtickrange": [86_400_000, None], "value": "%b %d"},
]


def plain(text: object) -> str:
    """Return text from a job, escaped for a chart, which interprets some markup."""
    return html.escape(printable(str(text)), quote=True)


def value_axis(unit: Unit, **more: Any) -> dict[str, Any]:
    """Return the value axis for a unit: it starts at zero, so that a small change looks small."""
    axis = {"rangemode": "tozero", "zeroline": False, "nticks": 5}
    return {**axis, **_AXES.get(unit, {"tickformat": "~s"}), **more}


def time_axis(span: TimeRange | None, **more: Any) -> dict[str, Any]:
    """Return the time axis; it shows the whole range until the user zooms."""
    axis: dict[str, Any] = {
        "type": "date", "showgrid": False, "nticks": 7,
        "tickformatstops": _CLOCK, "hoverformat": "%b %d %H:%M:%S",
    }  # fmt: skip
    if span is not None:
        axis["range"] = [local(span.start_ms), local(span.end_ms)]
    return {**axis, **more}


def layout(name: str, **more: Any) -> dict[str, Any]:
    """Return the layout of a chart; ``uirevision`` keeps the user's zoom."""
    above = 28 if more.get("showlegend", True) else 8
    return {
        # Reserve room for labels and legend; otherwise the chart is laid out twice.
        "margin": {"l": 70, "r": 12, "t": above, "b": 28},
        "uirevision": name,
        "hovermode": "x unified",
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
            "traceorder": "normal",
            "itemwidth": 30,
            "font": {"size": 11},
        },
        "dragmode": "zoom",
        **more,
    }


def figure(data: Sequence[Mapping[str, Any]], shape: Mapping[str, Any]) -> Figure:
    """Return a figure as the chart component expects it."""
    return {"data": [dict(trace) for trace in data], "layout": dict(shape)}

"""Charts over one time axis, one above the other, each with its own short legend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.time_range import TimeRange

# Pixels: of the chart of a row, of its title above it, and of the time axis below the last one.
ROW: Final = 118
HEAD: Final = 30
FOOT: Final = 26
# What is lower than this part of the highest cannot be seen, and needs no name.
_LEAST: Final = 0.01
_MOST_NAMES: Final = 7


class Row(NamedTuple):
    """One chart: what it shows, and the newest value or why there is none."""

    title: str
    figure: Figure
    note: str = ""


def height(rows: Sequence[Row]) -> int:
    """Return the height of the whole."""
    return len(rows) * (HEAD + ROW) + FOOT


def stacked(name: str, rows: Sequence[Row], span: TimeRange) -> Figure:
    """Return the charts as one figure, whose rows zoom and are read together."""
    high = height(rows) - FOOT
    traces: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    words: list[dict[str, Any]] = []
    shapes: list[Any] = []
    for place, row in enumerate(rows):
        number = str(place + 1) if place else ""
        top = 1 - (place * (HEAD + ROW) + HEAD) / high
        layout = row.figure["layout"]
        axes[f"yaxis{number}"] = {**layout["yaxis"], "domain": [max(0.0, top - ROW / high), top],
                                  "nticks": 3, "anchor": "x"}  # fmt: skip
        traces += [{**trace, "yaxis": f"y{number}"} for trace in row.figure["data"]]
        shapes += [{**each, "yref": f"y{number} domain"} for each in layout.get("shapes", ())]
        words += [_text(0, top, f"<b>{base.plain(row.title)}</b>{''.join(_keys(row.figure))}"),
                  _text(1, top, base.plain(row.note))]  # fmt: skip
    last = f"y{len(rows)}" if len(rows) > 1 else "y"
    shape = base.layout(
        f"{name} {span.name}",
        xaxis=base.time_axis(span, anchor=last),
        annotations=[each for each in words if each["text"]],
        shapes=shapes,
        showlegend=False,
        # One box for all rows of a moment.
        hoversubplots="axis",
        margin={"l": 58, "r": 12, "t": 0, "b": FOOT},
        **axes,
    )
    return base.figure(traces, shape)


def _text(x: float, y: float, words: str) -> dict[str, Any]:
    side = "right" if x else "left"
    return {
        "text": words, "x": x, "y": y, "xref": "paper", "yref": "paper", "xanchor": side,
        "yanchor": "bottom", "align": side, "showarrow": False, "font": {"size": 13},
    }  # fmt: skip


def _keys(figure: Figure) -> Iterator[str]:
    """Yield the names of what is seen, each in its colour."""
    drawn = [trace for trace in figure["data"] if trace.get("showlegend", True)]
    highest = max((_highest(trace) for trace in drawn), default=0.0)
    seen = [t for t in drawn if t["mode"] == "markers" or _highest(t) >= _LEAST * highest]
    for trace in seen[:_MOST_NAMES] if len(seen) > 1 else ():
        colour, mark = _drawn(trace)
        yield f'   <span style="color:{colour}">{mark}</span> {trace["name"]}'


def _drawn(trace: Mapping[str, Any]) -> tuple[str, str]:
    if trace["mode"] == "markers":
        return trace["marker"]["color"], "▲"
    if "stackgroup" in trace:
        return trace["line"]["color"], "■"
    return trace["line"]["color"], "━" if trace["line"].get("dash") == "solid" else "╍"


def _highest(trace: Mapping[str, Any]) -> float:
    return max((y for y in trace["y"] if y is not None), default=0.0)

"""A budget as one bar, and step time by cause as areas, each cause in its own colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.causes import Causes
from whyidle.dashboard.views.time_range import TimeRange, local
from whyidle.monitor.core.contracts.trace import AccountJson
from whyidle.monitor.core.metrics import Unit
from whyidle.monitor.core.slices import LOOKS, Slice

# Parts below the first cannot be seen; parts below the second have no room for a label.
LEAST_SHARE: Final = 0.0005
LEAST_WRITTEN: Final = 0.04
_HOVERS: Final[Mapping[Unit, str]] = {
    "seconds": "%{y:.3~s}s", "ratio": "%{y:.0%}", "count": "%{y:.1f}",
}  # fmt: skip


def bar(name: str, budgets: Mapping[str, AccountJson]) -> Figure:
    """Return budgets as stacked bars, each part by its share of the whole."""
    rows = {
        row: {part: _share(each["slices"], part) for part in Slice} for row, each in budgets.items()
    }
    shape = base.layout(
        name,
        barmode="stack",
        hovermode="closest",
        bargap=0.25,
        xaxis={"visible": False, "range": [0, 1], "fixedrange": True},
        yaxis={"visible": len(rows) > 1, "automargin": True, "fixedrange": True,
               "autorange": "reversed", "showgrid": False},
        legend={"orientation": "h", "y": -0.05, "yanchor": "top", "x": 0, "traceorder": "normal"},
        margin={"l": 0, "r": 0, "t": 0, "b": 30},
    )  # fmt: skip
    return base.figure(bars(rows, "%{customdata:.1%}"), shape)


def bars(rows: Mapping[str, Mapping[Slice, float]], form: str) -> list[dict[str, Any]]:
    """Return bars of stacked parts on one scale; ``form`` is the hover format of a value."""
    wholes = {row: sum(parts.values()) or 1.0 for row, parts in rows.items()}
    longest = max(wholes.values(), default=1.0)
    lengths = {part: [parts.get(part, 0.0) for parts in rows.values()] for part in Slice}
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": LOOKS[part].words,
            "y": [base.plain(row) for row in rows],
            "x": of_part,
            "marker": {"color": theme.CAUSES[part]},
            "customdata": [x / whole for x, whole in zip(of_part, wholes.values(), strict=True)],
            "text": [
                f"{x / whole:.0%}" if x >= LEAST_WRITTEN * longest else ""
                for x, whole in zip(of_part, wholes.values(), strict=True)
            ],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "hovertemplate": f"{LOOKS[part].words}: {form}<br>{LOOKS[part].meaning}<extra></extra>",
        }
        for part, of_part in lengths.items()
        if any(x >= LEAST_SHARE * longest for x in of_part)
    ]


def over_time(
    name: str,
    causes: Causes,
    span: TimeRange,
    marks: Sequence[Mapping[str, Any]] = (),
    unit: Unit | None = None,
) -> Figure:
    """Return step time by cause; marks show compilations, garbage collections and traces.

    These are areas with stepped edges: a bar per moment and cause costs the browser twice as much.
    """
    unit = unit or ("seconds" if causes.is_of_steps else "ratio")
    hover = _HOVERS[unit]
    places = _places(causes.times)
    times = [local(time) for time, _ in places]
    known = next((_at(values, places) for values in causes.parts.values()), [])
    traces: list[Mapping[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": LOOKS[part].words,
            "x": times,
            # An unknown moment leaves a gap: the area has no height there.
            "y": [0 if value is None else round(value, 9) for value in _at(values, places)],
            "stackgroup": "causes",
            "line": {"width": 0, "shape": "hv", "color": theme.CAUSES[part]},
            "fillcolor": theme.CAUSES[part],
            "hovertemplate": ["not known" if each is None else hover for each in known],
        }
        for part, values in causes.parts.items()
    ]
    shape = base.layout(
        f"{name} {span.name}", xaxis=base.time_axis(span), yaxis=base.value_axis(unit),
        shapes=[_rule(mark) for mark in marks],
    )  # fmt: skip
    return base.figure([*traces, *_labels(marks)], shape)


def _places(times: Sequence[int]) -> list[tuple[int, int | None]]:
    """Return where an area has an edge, and which moment it shows from there on, if any.

    A moment lasts as long as most do; then comes the next one, or a gap.
    """
    between = sorted(later - sooner for sooner, later in pairwise(times))
    width = between[(len(between) - 1) // 2] if between else 1000
    found: list[tuple[int, int | None]] = []
    for place, time in enumerate(times):
        found.append((time, place))
        end = time + width
        # The intervals between rows vary a little.
        if place + 1 == len(times) or times[place + 1] > end + width // 2:
            found.append((end, None))
    return found


def _at(
    values: Sequence[float | None], places: Sequence[tuple[int, int | None]]
) -> list[float | None]:
    return [None if place is None else values[place] for _, place in places]


def _rule(mark: Mapping[str, Any]) -> dict[str, Any]:
    at = local(mark["ts_ms"])
    line = {"color": mark["colour"], "width": 1, "dash": "dot"}
    return {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _labels(marks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the marks as points with a hover text, one trace per kind."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for mark in marks:
        kinds.setdefault(mark["kind"], []).append(mark)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": kind,
            "x": [local(mark["ts_ms"]) for mark in some],
            "y": [0] * len(some),
            "marker": {"symbol": "triangle-up", "size": 9, "color": some[0]["colour"]},
            "text": [base.plain(mark["text"]) for mark in some],
            "hovertemplate": "%{text}<extra></extra>",
        }
        for kind, some in kinds.items()
    ]


def _share(slices: Mapping[str, int], part: Slice) -> float:
    total = sum(slices.values())
    return slices.get(part, 0) / total if total else 0.0

"""Lines over time, with limits as dashes and what lies between the least and the most as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.series import Course
from whyidle.dashboard.views.time_range import Span, local
from whyidle.monitor.core.metrics import Unit

_FORMATS: Final[dict[Unit, str]] = {
    "ratio": ".0%", "bytes": ".3~f", "watts": ".0f", "cores": ".2f",
    "per_second": base.COUNTS, "count": base.COUNTS,
}  # fmt: skip
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Line:
    """One course and how it is drawn."""

    course: Course
    colour: str
    dash: str = "solid"
    width: float = 1.6
    fill: bool = False
    # What lies between the least and the most of several.
    band: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A height that cannot be passed."""

    words: str
    value: float


def lines(
    name: str,
    drawn: Sequence[Line],
    unit: Unit,
    span: Span,
    *,
    limits: Sequence[Limit] = (),
    **more: Any,
) -> Figure:
    """Return a chart of lines; what is unknown leaves a gap."""
    known = [line for line in drawn if line.course.unknown is None]
    factor, suffix = _scale(known, limits) if unit == "bytes" else (1.0, "")
    traces = [
        trace
        for line in known
        for trace in (*_band(line, factor), _trace(line, unit, factor, suffix))
    ]
    traces += [_limit(limit, span, factor) for limit in limits] if known else []
    axis = {"ticksuffix": suffix, "tickformat": "~f"} if suffix else {}
    shape = base.layout(
        f"{name} {span.name}",
        xaxis=base.time_axis(span),
        yaxis=base.value_axis(unit, **axis),
        **more,
    )
    return base.figure(traces, shape)


def _scale(drawn: Sequence[Line], limits: Sequence[Limit]) -> tuple[float, str]:
    """Return by what bytes are divided, so that an axis has the binary units of all other words."""
    known = [v for line in drawn for v in line.course.values if v is not None]
    highest = max([*known, *(limit.value for limit in limits)], default=0.0)
    step = 0
    while highest >= 1024 and step < len(_BINARY) - 1:
        highest /= 1024
        step += 1
    return float(1024**step), f" {_BINARY[step]}"


def _trace(line: Line, unit: Unit, factor: float, suffix: str) -> dict[str, Any]:
    course = line.course
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "name": base.plain(course.name),
        "x": [local(time) for time in course.times],
        "y": _heights(course.values, factor),
        "line": {"color": line.colour, "width": line.width, "dash": line.dash},
        "connectgaps": False,
        "hovertemplate": f"%{{y:{_FORMATS.get(unit, '.4~s')}}}{suffix}",
    }
    if line.fill:
        trace |= {"fill": "tozeroy", "fillcolor": f"{line.colour}22"}
    return trace


def _band(line: Line, factor: float) -> list[dict[str, Any]]:
    """Return the edges of a band, filled between; they have no line and no word of their own."""
    course = line.course
    if not line.band or not course.least:
        return []
    edge: dict[str, Any] = {
        "type": "scatter", "mode": "lines", "x": [local(time) for time in course.times],
        "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "connectgaps": False,
    }  # fmt: skip
    fill = {"fill": "tonexty", "fillcolor": f"{line.colour}2e"}
    low, high = (_heights(heights, factor) for heights in (course.least, course.most))
    return [{**edge, "y": low}, {**edge, "y": high, **fill}]


def _limit(limit: Limit, span: Span, factor: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": base.plain(limit.words),
        "x": [local(span.start_ms), local(span.end_ms)],
        "y": [round(limit.value / factor, 6)] * 2,
        "line": {"color": theme.GREY, "width": 1.2, "dash": "dash"},
        "hoverinfo": "skip",
    }


def _heights(values: Sequence[float | None], factor: float) -> list[float | None]:
    return [None if value is None else round(value / factor, 6) for value in values]

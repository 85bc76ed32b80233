"""Lines over time, with dashed limits and a band from the least to the most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.views.series import Series
from whyidle.dashboard.views.time_range import TimeRange, local
from whyidle.monitor.core.metrics import Unit

_FORMATS: Final[dict[Unit, str]] = {
    "ratio": ".0%", "bytes": ".3~f", "watts": ".0f", "cores": ".2f",
    "per_second": base.COUNTS, "count": base.COUNTS,
}  # fmt: skip
# Closer to its limit than this, a line and its limit fit into one chart.
NEAR: Final = 0.5
# The lowest top of an axis of shares: below it all is near nothing.
LOWEST_TOP: Final = 0.05
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Line:
    """One series, and how it is drawn."""

    series: Series
    colour: str
    dash: str = "solid"
    width: float = 1.6
    fill: bool = False
    # Show the range of the values behind a mean.
    band: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A value that cannot be exceeded."""

    words: str
    value: float


def lines(
    name: str,
    drawn: Sequence[Line],
    unit: Unit,
    span: TimeRange,
    *,
    limits: Sequence[Limit] = (),
    **more: Any,
) -> Figure:
    """Return a line chart; unknown values leave gaps, and limits far above are not drawn."""
    known = [line for line in drawn if line.series.unknown is None]
    highest = max((line.series.peak[1] for line in known if line.series.peak), default=0.0)
    limits = [limit for limit in limits if highest >= NEAR * limit.value]
    factor, suffix = _scale(known, limits) if unit == "bytes" else (1.0, "")
    traces = [
        trace
        for line in known
        for trace in (*_band(line, factor), _trace(line, unit, factor, suffix))
    ]
    traces += [_limit(limit, span, factor) for limit in limits] if known else []
    axis: dict[str, object] = {"ticksuffix": suffix, "tickformat": "~f"} if suffix else {}
    if unit == "ratio":
        axis["range"] = [0, min(1.02, max(LOWEST_TOP, 1.2 * highest))]
    shape = base.layout(
        f"{name} {span.name}",
        xaxis=base.time_axis(span),
        yaxis=base.value_axis(unit, **axis),
        **more,
    )
    return base.figure(traces, shape)


def _scale(drawn: Sequence[Line], limits: Sequence[Limit]) -> tuple[float, str]:
    """Return the divisor and suffix for bytes: axes use binary units like all other text."""
    known = [v for line in drawn for v in line.series.values if v is not None]
    highest = max([*known, *(limit.value for limit in limits)], default=0.0)
    step = 0
    while highest >= 1024 and step < len(_BINARY) - 1:
        highest /= 1024
        step += 1
    return float(1024**step), f" {_BINARY[step]}"


def _trace(line: Line, unit: Unit, factor: float, suffix: str) -> dict[str, Any]:
    series = line.series
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "name": base.plain(series.name),
        "x": [local(time) for time in series.times],
        "y": _heights(series.values, factor),
        "line": {"color": line.colour, "width": line.width, "dash": line.dash},
        "connectgaps": False,
        "hovertemplate": f"%{{y:{_FORMATS.get(unit, '.4~s')}}}{suffix}",
    }
    if line.fill:
        trace |= {"fill": "tozeroy", "fillcolor": f"{line.colour}22"}
    return trace


def _band(line: Line, factor: float) -> list[dict[str, Any]]:
    """Return the edges of a filled band, without lines and hover labels."""
    series = line.series
    if not line.band or not series.least:
        return []
    edge: dict[str, Any] = {
        "type": "scatter", "mode": "lines", "x": [local(time) for time in series.times],
        "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "connectgaps": False,
    }  # fmt: skip
    fill = {"fill": "tonexty", "fillcolor": f"{line.colour}2e"}
    low, high = (_heights(heights, factor) for heights in (series.least, series.most))
    return [{**edge, "y": low}, {**edge, "y": high, **fill}]


def _limit(limit: Limit, span: TimeRange, factor: float) -> dict[str, Any]:
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

"""Charts that keep their zoom while their data changes: ``Plotly.react`` on elements that stay.

Streamlit's own chart is rebuilt whenever its figure changes, and loses the zoom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import streamlit as st

from whyidle.dashboard.blocks import Block, Chart
from whyidle.dashboard.index_page import PLOTLY

_component = st.components.v2.component(
    "whyidle_live_plotly",
    html='<div class="w-board"></div>',
    js=files("whyidle.dashboard").joinpath("live_plotly.js").read_text("utf-8"),
    isolate_styles=False,
)


def board(blocks: Sequence[Block], key: str, *, base: str = "") -> None:
    """Draw markup and charts as one element; the key of a chart identifies it across updates."""
    _component(data=_data(blocks, base), key=key)


@dataclass(frozen=True, slots=True)
class ChartEvents:
    """What the user just did to a chart."""

    clicked: Mapping[str, Any] | None = None
    # The range on the axis; empty: everything.
    zoomed: tuple[float, float] | tuple[()] | None = None


def zoomable(figure: Mapping[str, Any], key: str, *, height: int, base: str = "") -> ChartEvents:
    """Draw a chart whose zoom the caller handles, by drawing it again for the new range."""
    data = {**_data([Chart(key, dict(figure), height)], base), "asks": True}
    result = _component(data=data, key=key, on_clicked_change=_nothing, on_zoomed_change=_nothing)
    point, zoomed = result.get("clicked"), result.get("zoomed")
    return ChartEvents(point if isinstance(point, dict) else None, _range(zoomed))


def _range(value: object) -> tuple[float, float] | tuple[()] | None:
    """Return an untrusted value from the browser as a range, if it is one."""
    if value == []:
        return ()
    if not isinstance(value, list) or len(value) != 2:
        return None
    start, end = value
    if not all(isinstance(at, int | float) and math.isfinite(at) for at in value) or end <= start:
        return None
    return float(start), float(end)


def _data(blocks: Sequence[Block], base: str) -> dict[str, Any]:
    script = f"/{base}/{PLOTLY}" if base else f"/{PLOTLY}"
    return {"blocks": [block.to_dict() for block in blocks], "script": script}


def _nothing() -> None:
    """Do nothing: events are handled where the chart is drawn."""

"""Charts that keep their zoom while their data moves: ``Plotly.react`` on elements that stay.

Streamlit's own chart is made anew whenever its figure changes, and forgets what the reader did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import streamlit as st

from whyidle.dashboard.blocks import Block, Chart
from whyidle.dashboard.front import PLOTLY

_component = st.components.v2.component(
    "whyidle_live_plotly",
    html='<div class="w-board"></div>',
    js=files("whyidle.dashboard").joinpath("live_plotly.js").read_text("utf-8"),
    isolate_styles=False,
)


def board(blocks: Sequence[Block], key: str, *, base: str = "") -> None:
    """Draw markup and charts as one element; a chart of the same key is the same chart."""
    _component(data=_data(blocks, base), key=key)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the reader did to a chart just now."""

    clicked: Mapping[str, Any] | None = None
    # From where to where on the axis; nothing of both: all that there is.
    zoomed: tuple[float, float] | tuple[()] | None = None


def lens(figure: Mapping[str, Any], key: str, *, height: int, base: str = "") -> Asked:
    """Draw a figure that is drawn anew for what the reader zooms to: whoever calls does that."""
    data = {**_data([Chart(key, dict(figure), height)], base), "asks": True}
    told = _component(data=data, key=key, on_clicked_change=_nothing, on_zoomed_change=_nothing)
    point, zoomed = told.get("clicked"), told.get("zoomed")
    return Asked(point if isinstance(point, dict) else None, _range(zoomed))


def _range(told: object) -> tuple[float, float] | tuple[()] | None:
    """Return what came from a browser as a range, whatever it is."""
    if told == []:
        return ()
    if not isinstance(told, list) or len(told) != 2:
        return None
    start, end = told
    if not all(isinstance(at, int | float) and math.isfinite(at) for at in told) or end <= start:
        return None
    return float(start), float(end)


def _data(blocks: Sequence[Block], base: str) -> dict[str, Any]:
    script = f"/{base}/{PLOTLY}" if base else f"/{PLOTLY}"
    return {"blocks": [block.told() for block in blocks], "script": script}


def _nothing() -> None:
    """Stand for a reader of clicks: what they come to is read where the chart is drawn."""

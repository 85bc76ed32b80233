"""Which of several GPUs a page shows; a single one needs no choice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, product
from typing import Final

import streamlit as st

from whyidle.dashboard import theme
from whyidle.dashboard.figures.lines import Limit, Line
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.series import Series, Subject
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.render import numbers

TOGETHER: Final = "together"
EACH: Final = "each"


def choice(gpus: Gpus, *, each: bool = False) -> str:
    """Draw the choice among several GPUs: all together, one by index, or each separately."""
    if len(gpus.shown) < 2:
        return TOGETHER
    # An index has digits, and a colon for a MIG part of a GPU.
    indices = [gpu.idx for gpu in gpus.rows if gpu.idx and gpu.idx.replace(":", "").isdecimal()]
    options = [TOGETHER, *([EACH] if each else []), *indices]
    chosen = st.segmented_control(
        "GPU", options, default=TOGETHER, key="gpu", bind="query-params", width="stretch",
        label_visibility="collapsed",
    )  # fmt: skip
    return chosen or TOGETHER


def named(gpus: Gpus) -> str:
    """Return which GPUs are shown, and why these, in a few words."""
    if not gpus.shown:
        return ""
    count = gpus.names
    others = f"; {gpus.others} more in the machine" if gpus.others else ""
    how = gpus.how if gpus.shown == gpus.mine else "all of the machine"
    return f"{count}{others} ({how})" if how else f"{count}{others}"


def one_by_one(all_series: Sequence[Series]) -> list[Line]:
    """Return a line per series, in distinct colours."""
    fill = len(all_series) == 1
    return [
        Line(one, shade, dash, fill=fill)
        for one, (dash, shade) in zip(
            all_series, cycle(product(theme.DASHES, theme.SHADES)), strict=False
        )
    ]


def limits(newest: Newest, metric: Metric, gpus: Sequence[Subject], words: str) -> list[Limit]:
    """Return the limits of these GPUs, each once."""
    values = {newest.get(metric, gpu.id).value for gpu in gpus}
    return [
        Limit(f"{words} {numbers.show(value, metric.unit)}", value)
        for value in sorted(value for value in values if value is not None)
    ]

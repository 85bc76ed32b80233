"""The user's chains of lines as an icicle: the outermost line at the top, as wide as its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure
from whyidle.monitor.core.host_class import HOST_LOOKS, HostClass
from whyidle.monitor.render import numbers
from whyidle.monitor.signals.code_boxes import Box

ROW_HEIGHT: Final = 27
LEAST_HEIGHT: Final = 60
# So many letters go into the whole width, also of a narrow window.
_LETTERS: Final = 95
# Fewer say nothing.
_LEAST_LETTERS: Final = 3
_LONGEST: Final = 120


def icicle(name: str, boxes: Sequence[Box], samples: float) -> Figure:
    """Return the chart; a click on a box zooms into it."""
    colours = [_colour(box.colour) for box in boxes]
    trace = {
        "type": "icicle",
        "ids": [box.key for box in boxes],
        "parents": [box.parent for box in boxes],
        "labels": [base.plain(_whole(box)) for box in boxes],
        # The ends add up to all others, which no rounding can spoil.
        "values": [round(box.share, 7) if box.is_end else 0 for box in boxes],
        "branchvalues": "remainder",
        "sort": True,
        "text": [base.plain(_fitting(box)) for box in boxes],
        "textinfo": "text",
        "textposition": "middle left",
        "hovertext": [_hover(box, samples) for box in boxes],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"colors": colours, "line": {"width": 1}},
        "leaf": {"opacity": 1},
        "textfont": {"color": [theme.ink(each) for each in colours]},
        "tiling": {"orientation": "v", "pad": 1},
        "pathbar": {"visible": False},
    }
    shape = base.layout(
        name,
        showlegend=False,
        hovermode="closest",
        dragmode=False,
        margin={"l": 0, "r": 0, "t": 0, "b": 4},
        # Smaller text cannot be read.
        uniformtext={"minsize": 11, "mode": "hide"},
    )
    return base.figure([trace], shape)


def height(boxes: Sequence[Box]) -> int:
    """Return the height of such a chart."""
    depth: dict[str, int] = {}
    for box in boxes:
        depth[box.key] = depth.get(box.parent, 0) + 1
    return max(LEAST_HEIGHT, ROW_HEIGHT * max(depth.values(), default=1))


def _whole(box: Box) -> str:
    return box.words or doing(box)


def doing(box: Box) -> str:
    """Return what the thread does in a box."""
    return ", ".join(HOST_LOOKS[each].words for each in box.doing)


def _fitting(box: Box) -> str:
    """Return the longest text that has room in a box."""
    room = int(box.share * _LETTERS)
    share = numbers.show(box.share, "ratio")
    texts = [_whole(box)]
    if box.line is not None and box.words:
        texts += [box.line.function, box.words.partition(" in ")[0], f":{box.line.line}"]
    for text in texts:
        for each in (f"{text}  {share}", text):
            if len(each) <= room:
                return each
    short = texts[0][: room - 1] + "…"
    return short if room >= _LEAST_LETTERS else ""


def _hover(box: Box, samples: float) -> str:
    rows = [f"<b>{base.plain(_short(_whole(box)))}</b>"]
    if box.line is not None:
        rows.append(base.plain(f"{_short(box.line.file)}:{box.line.line}"))
    error = numbers.show(box.error, "ratio")
    share = numbers.show(box.share, "ratio")
    rows.append(f"{share} ± {error} of {samples:,.0f} samples")
    rows += [
        f"{HOST_LOOKS[each].words}: {numbers.show(part, 'ratio')}"
        for each, part in box.doing.items()
    ]
    return "<br>".join(rows)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"


def _colour(kind: HostClass | None) -> str:
    return theme.MIXED if kind is None else HOST_LOOKS[kind].colour

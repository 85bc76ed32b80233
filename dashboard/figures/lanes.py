"""The lanes of a trace as bars: what each lane did, and above it why the device was idle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from whyidle.dashboard import theme
from whyidle.dashboard.figures import base
from whyidle.dashboard.figures.base import Figure, plain
from whyidle.dashboard.figures.overview import LEFT, RIGHT, unit_of
from whyidle.dashboard.views.timeline import TickRange, ns
from whyidle.dashboard.views.timeline_lanes import Lane, Picture
from whyidle.monitor.core.slices import LOOKS
from whyidle.monitor.render.budget import clock, share
from whyidle.monitor.render.kernel_names import short_name
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.pieces import FINEST

By = Literal["cause", "kind"]

# Heights of lanes in units of a usual one, and the space between two groups.
_HEIGHTS: Final = {"step": 0.9, "rank": 1.4, "idle": 1.7, "work": 1.1, "host": 0.9}
_BETWEEN: Final = 0.7
_PIXELS: Final = 22
_AROUND: Final = 66
# The least width of the chart on most screens, and the width of a letter, in pixels.
_WIDE: Final = 720
_LETTER: Final = 7
_LABEL: Final = 27
_NAMED_FROM: Final = 0.03
_HOVER_MOST: Final = 90
# Host events show what the host did; only the lane above shows what that cost.
_FAINT: Final = 0.7
_THINNEST: Final = 0.2
# A click this far beside a thin piece still selects it, as a share of the window.
_REACH: Final = 0.01
# With more pieces in a lane, none has room beside it.
_BESIDE_MOST: Final = 200
_UNSEEN: Final = "rgba(0,0,0,0)"
_STEPS: Final = ("#9AA1AB", "#C3C8CF")
# The grey to mix in, and how much of it.
_SHADES: Final = ((255, 0.0), (255, 0.4), (0, 0.35), (255, 0.65), (0, 0.6), (255, 0.82))
_PLACES: Final = {part: place for place, part in enumerate(LOOKS)}


@dataclass(slots=True)
class _Bars:
    """The bars of one colour."""

    name: str
    colour: str
    faint: bool
    # Position in the legend.
    place: int
    y: list[float] = field(default_factory=list)
    base: list[float] = field(default_factory=list)
    x: list[float] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    lane: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    hover: list[str] = field(default_factory=list)
    data: list[list[object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A bar of a lane, with its hover text."""

    start: int
    end: int
    hover: str
    data: list[object]


@dataclass(frozen=True, slots=True)
class Selected:
    """What the user clicked on, in ticks."""

    start: int
    end: int


def lanes(
    name: str, picture: Picture, by: By = "cause", selected: Selected | None = None
) -> tuple[Figure, int]:
    """Return the lanes of a window, and their height."""
    drawing = _Drawing(picture, by)
    traces = drawing.traces()
    size, suffix = drawing.unit
    long = ns(picture.trace, picture.part.ticks) / size
    shape = base.layout(
        f"{name}-{picture.part.start}-{picture.part.end}",
        barmode="overlay",
        hovermode="closest",
        xaxis={"range": [0, long], "ticksuffix": f" {suffix}", "showgrid": True, "nticks": 9,
               "zeroline": False, "side": "bottom", "exponentformat": "none"},
        yaxis={"range": [drawing.bottom, -0.2], "tickvals": drawing.at, "ticktext": drawing.labels,
               "fixedrange": True, "showgrid": False, "zeroline": False},
        margin={"l": LEFT, "r": RIGHT, "t": 26, "b": 26},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left",
                "traceorder": "normal", "itemsizing": "constant"},
        shapes=list(drawing.shapes(selected)),
    )  # fmt: skip
    return base.figure(traces, shape), int(drawing.bottom * _PIXELS) + _AROUND


class _Drawing:
    """Lays out the lanes of a picture."""

    def __init__(self, picture: Picture, by: By) -> None:
        self._picture = picture
        self._trace = picture.trace
        self._by = by
        self._bars: dict[tuple[str, str, bool], _Bars] = {}
        self._kinds = _kinds(picture) if by == "kind" else {}
        self.unit = unit_of(self._trace, picture.part)
        self.at: list[float] = []
        self.labels: list[str] = []
        self.bottom = 0.0
        self._narrowest = self._x(int(picture.part.ticks * FINEST))
        self._place()

    def traces(self) -> list[Mapping[str, Any]]:
        """Return one trace of bars per colour; each name is in the legend once."""
        traces, named = [], {""}
        for bars in sorted(self._bars.values(), key=lambda bars: (bars.place, bars.name)):
            traces.append(_trace(bars, shown=bars.name not in named))
            named.add(bars.name)
        return traces

    def shapes(self, selected: Selected | None) -> Iterator[dict[str, Any]]:
        """Yield the frame around the selected piece, and a line where the last rank came."""
        part = self._picture.part
        for at in self._picture.came:
            yield {
                "type": "line", "x0": self._x(at - part.start), "x1": self._x(at - part.start),
                "y0": 0, "y1": 1, "yref": "paper", "layer": "above",
                "line": {"width": 1, "dash": "dot", "color": theme.GREY},
            }  # fmt: skip
        if selected is None:
            return
        start, end = (self._x(at - part.start) for at in _cut(selected, part))
        if end > start:
            yield {
                "type": "rect", "x0": start, "x1": end, "y0": 0, "y1": 1, "yref": "paper",
                "fillcolor": "rgba(128,128,128,0.16)", "line": {"width": 1.4, "color": theme.GREY},
                "layer": "above",
            }  # fmt: skip

    def _place(self) -> None:
        if self._picture.steps:
            self._steps()
        group = ""
        for lane in self._picture.lines:
            if lane.header.group != group:
                group = lane.header.group
                self.bottom += _BETWEEN
            self._line(lane, _HEIGHTS[lane.header.what])
        self.bottom += 0.3

    def _next(self, height: float, label: str) -> float:
        middle = self.bottom + height / 2
        self.bottom += height
        if label:
            self.at.append(middle)
            self.labels.append(plain(label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"))
        return middle

    def _steps(self) -> None:
        height = _HEIGHTS["step"]
        middle = self._next(height, "steps")
        for number, part in self._picture.steps:
            bars = self._of(_Bars("", _STEPS[number % 2], faint=False, place=-1))
            took = clock(ns(self._trace, part.ticks))
            self._add(bars, part.start, part.end, middle, 0.8 * height)
            bars.text.append(self._fits(part, f"step {number}"))
            bars.hover.append(f"step {number}<br>{took}")
            bars.data.append(["step", number, 0, 0])

    def _line(self, lane: Lane, height: float) -> None:
        header = lane.header
        first = header.what in {"idle", "rank", "host"} or not self.labels
        label = f"{header.group} · {header.name}" if header.what == "idle" else header.name or (
            header.group if first and _is_first(self._picture, lane) else ""
        )  # fmt: skip
        middle = self._next(height, label)
        merged = lane.merged
        pieces: list[_Piece] = []
        rows = zip(
            merged.start.tolist(), merged.end.tolist(), merged.kind.tolist(), merged.count.tolist(),
            merged.busy.tolist(), lane.names, lane.starts.tolist(), lane.ends.tolist(), strict=True,
        )  # fmt: skip
        for start, end, kind, count, busy, name, begins, ends in rows:
            bars = self._coloured(Cause(kind), faint=header.what == "host")
            full = 0.86 * height
            tall = full * max(_THINNEST, min(1.0, busy / max(1, end - start)))
            self._add(bars, start, end, middle + (full - tall) / 2, tall)
            part = TickRange(start, end)
            single = count == 1
            short = short_name(name) if header.what == "work" else name
            bars.text.append(self._fits(part, short) if single else "")
            took = clock(ns(self._trace, ends - begins if single else end - start))
            words = _words(header.what, Cause(kind), name)
            bars.hover.append(
                f"{words}<br>{took}" if single else _several(words, count, busy, end - start, took)
            )
            offset = begins - self._trace.start, ends - self._trace.start
            bars.data.append([header.what, header.of, *(ns(self._trace, at) for at in offset)])
            pieces.append(_Piece(start, end, bars.hover[-1], bars.data[-1]))
        if header.what == "idle":
            self._beside(pieces, middle, 0.86 * height)

    def _beside(self, pieces: Sequence[_Piece], middle: float, height: float) -> None:
        """Let a click beside a thin piece select it."""
        part = self._picture.part
        reach = int(_REACH * part.ticks)
        if len(pieces) > _BESIDE_MOST:
            return
        for i, piece in enumerate(pieces):
            if piece.end - piece.start > 2 * reach:
                continue
            before = pieces[i - 1].end if i else part.start
            after = pieces[i + 1].start if i + 1 < len(pieces) else part.end
            # At most half way to a neighbour.
            start = max(piece.start - reach, (piece.start + before) // 2)
            end = min(piece.end + reach, (piece.end + after) // 2)
            bars = self._of(_Bars("", _UNSEEN, faint=False, place=-2))
            self._add(bars, start, end, middle, height)
            bars.text.append("")
            bars.hover.append(piece.hover)
            bars.data.append(piece.data)
            bars.lane[-1] = 0

    def _add(self, bars: _Bars, start: int, end: int, middle: float, height: float) -> None:
        at, long = self._x(start - self._picture.part.start), self._x(end - start)
        bars.y.append(round(middle, 3))
        bars.base.append(at)
        bars.x.append(max(long, self._narrowest))
        bars.width.append(round(height, 3))
        bars.lane.append(0.5 if long > 6 * self._narrowest else 0)

    def _fits(self, part: TickRange, words: str) -> str:
        """Return as much of the text as fits on a piece."""
        of = part.ticks / self._picture.part.ticks
        if of < _NAMED_FROM:
            return ""
        room = int(of * _WIDE / _LETTER) - 1
        return plain(words if len(words) <= room else f"{words[: room - 1]}…")

    def _coloured(self, cause: Cause, *, faint: bool) -> _Bars:
        place = _PLACES[cause.slice]
        if self._by == "kind":
            return self._of(_Bars(cause.words, self._kinds[cause], faint, place))
        look_ = LOOKS[cause.slice]
        return self._of(_Bars(look_.words, look_.colour, faint, place))

    def _of(self, bars: _Bars) -> _Bars:
        return self._bars.setdefault((bars.name, bars.colour, bars.faint), bars)

    def _x(self, ticks: int) -> float:
        return ticks / self._trace.ticks_per_ns / self.unit[0]


def _trace(bars: _Bars, *, shown: bool) -> Mapping[str, Any]:
    return {
        "type": "bar", "orientation": "h", "name": plain(bars.name), "legendgroup": bars.name,
        "showlegend": shown, "y": bars.y, "x": bars.x, "base": bars.base, "width": bars.width,
        "marker": {"color": bars.colour, "line": {"width": bars.lane, "color": "rgba(0,0,0,0.35)"}},
        "opacity": _FAINT if bars.faint else 1.0,
        "text": bars.text, "textposition": "inside", "insidetextanchor": "start",
        "constraintext": "none", "textfont": {"size": 11},
        "textangle": 0, "customdata": bars.data, "hovertext": bars.hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }  # fmt: skip


def _words(what: str, cause: Cause, name: str) -> str:
    if what in {"idle", "rank"}:
        return f"<b>{plain(LOOKS[cause.slice].words)}</b>: {plain(cause.words)}"
    shown = short_name(name) if what == "work" else name
    shown = shown if len(shown) <= _HOVER_MOST else f"{shown[:_HOVER_MOST]}…"
    return f"{plain(shown) or plain(cause.words)}"


def _several(words: str, count: int, busy: int, ticks: int, took: str) -> str:
    return f"{count:,} pieces, {share(busy, ticks)} of {took}<br>longest: {words}<br>zoom in"


def _is_first(picture: Picture, lane: Lane) -> bool:
    return lane is next(x for x in picture.lines if x.header.group == lane.header.group)


def _cut(selected: Selected, part: TickRange) -> tuple[int, int]:
    return max(selected.start, part.start), min(selected.end, part.end)


def _kinds(picture: Picture) -> dict[Cause, str]:
    """Give each kind a shade of its cause's colour, the one with most time the colour itself."""
    time: dict[Cause, int] = {}
    for lane in picture.lines:
        for kind, busy in zip(lane.merged.kind.tolist(), lane.merged.busy.tolist(), strict=True):
            time[Cause(kind)] = time.get(Cause(kind), 0) + busy
    shades = {part: iter(_SHADES) for part in LOOKS}
    return {
        cause: _mixed(theme.CAUSES[cause.slice], *next(shades[cause.slice], _SHADES[-1]))
        for cause in sorted(time, key=lambda cause: -time[cause])
    }


def _mixed(colour: str, other: int, share_of_other: float) -> str:
    """Return a colour mixed with grey."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    mixed = (round(part + (other - part) * share_of_other) for part in parts)
    return "#" + "".join(f"{part:02X}" for part in mixed)

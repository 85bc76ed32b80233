"""The lanes of a trace as a chart: its pieces where they were, in the colours of their causes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from plotly.graph_objects import Figure

from tests.dashboard import timelines
from whyidle.dashboard import theme
from whyidle.dashboard.figures import lanes, overview
from whyidle.dashboard.views import timeline
from whyidle.dashboard.views.timeline import TickRange
from whyidle.dashboard.views.timeline_lanes import DRAWN_MOST, Picture, picture
from whyidle.dashboard.views.timeline_overview import overview as all_of
from whyidle.monitor.core.slices import LOOKS, Slice

MS = 1_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return timelines.make(tmp_path_factory.mktemp("lanes"), devices=2)


@pytest.fixture(scope="module")
def shown(store: Path) -> Picture:
    trace = timeline.traces(store, 1)[0]
    return picture(store, trace.id, timeline.whole(trace), [0, 1])


def pieces(figure: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Each piece that is drawn: its colour, and what a click on it means."""
    return [
        (bars["marker"]["color"], *data) for bars in figure["data"] for data in bars["customdata"]
    ]


def test_plotly_understands_every_part_of_it(shown: Picture) -> None:
    selected = lanes.Selected(shown.trace.start, shown.trace.start + MS)
    for by in ("cause", "kind"):
        figure, height = lanes.lanes("x", shown, by, selected)  # type: ignore[arg-type]
        drawn = Figure(figure)
        assert sum(len(bars.y) for bars in drawn.data) <= DRAWN_MOST + len(shown.steps)
        assert height > 100


def test_a_gap_is_drawn_when_it_was_in_the_colour_of_its_cause(shown: Picture) -> None:
    figure, _ = lanes.lanes("x", shown)
    colour = theme.CAUSES[Slice.IDLE_INPUT]
    idle = [
        (round(base), round(long), data[1])
        for bars in figure["data"]
        if bars["marker"]["color"] == colour and bars["opacity"] == 1
        for base, long, data in zip(bars["base"], bars["x"], bars["customdata"], strict=True)
        if data[0] == "idle" and long > 50
    ]
    # The account begins with the first operation or step; both devices wait for the same loader.
    assert (173, 90, 0) in idle
    assert (173, 90, 1) in idle


def test_each_colour_is_in_the_legend_once_in_the_order_of_the_causes(shown: Picture) -> None:
    figure, _ = lanes.lanes("x", shown)
    named = [bars["name"] for bars in figure["data"] if bars["showlegend"]]
    words = [each.words for each in LOOKS.values()]
    assert named == [name for name in words if name in named]


def test_by_kind_a_shade_belongs_to_one_kind_and_the_first_is_its_causes_own(
    shown: Picture,
) -> None:
    figure, _ = lanes.lanes("x", shown, "kind")
    colours = {bars["name"]: bars["marker"]["color"] for bars in figure["data"] if bars["name"]}
    assert colours["data loader"] == theme.CAUSES[Slice.IDLE_INPUT]
    assert colours["kernels"] == theme.CAUSES[Slice.COMPUTE]
    assert len(set(colours.values())) == len(colours)


def test_a_click_carries_what_was_clicked_on(shown: Picture) -> None:
    figure, _ = lanes.lanes("x", shown)
    kinds = {(what, of) for _, what, of, _, _ in pieces(figure) if what != "step"}
    assert {("idle", 0), ("idle", 1), ("work", 0), ("work", 1), ("host", 0)} <= kinds


def test_names_of_a_job_are_no_markup(store: Path, shown: Picture) -> None:
    part = TickRange(shown.trace.start + 71 * MS, shown.trace.start + 75 * MS)
    figure, _ = lanes.lanes("x", picture(store, shown.trace.id, part, [0]))
    texts = [text for bars in figure["data"] for text in (*bars["hovertext"], *bars["text"])]
    assert any("&lt;img" in text for text in texts)
    assert not any("<img" in text for text in texts)


def test_a_line_stands_below_the_other(shown: Picture) -> None:
    figure, _ = lanes.lanes("x", shown)
    axis = figure["layout"]["yaxis"]
    assert axis["ticktext"][:3] == ["steps", "GPU 0 · why idle", "stream 7"]
    assert axis["tickvals"] == sorted(axis["tickvals"])
    assert axis["range"][0] > axis["tickvals"][-1]


def test_the_overview_veils_what_the_lanes_do_not_show(store: Path, shown: Picture) -> None:
    trace = shown.trace
    parts = all_of(store, trace.id, [0, 1])
    part = TickRange(trace.start + 100 * MS, trace.start + 200 * MS)
    figure = Figure(overview.overview("x", parts, trace, part))
    veils = [(round(veil.x0), round(veil.x1)) for veil in figure.layout.shapes]
    assert veils == [(0, 100), (200, 433)]
    assert not overview.overview("x", parts, trace, timeline.whole(trace))["layout"]["shapes"]


@pytest.mark.parametrize(
    ("ns", "unit"), [(5_000_000_000, "s"), (1_999_000_000, "ms"), (3_000, "µs"), (1500, "ns")]
)
def test_a_window_is_named_in_a_unit_of_which_it_has_some(
    shown: Picture, ns: int, unit: str
) -> None:
    assert overview.unit_of(shown.trace, TickRange(0, ns))[1] == unit


def test_a_thin_gap_is_met_by_a_click_beside_it_and_never_by_one_on_another(
    store: Path, shown: Picture
) -> None:
    part = TickRange(shown.trace.start + 62 * MS, shown.trace.start + 82 * MS)
    figure, _ = lanes.lanes("x", picture(store, shown.trace.id, part, [0]))
    unseen = next(bars for bars in figure["data"] if bars["marker"]["color"] == lanes._UNSEEN)
    gaps = {tuple(data) for colour, *data in pieces(figure) if colour != lanes._UNSEEN}
    assert not unseen["showlegend"]
    assert len(unseen["y"]) > 5
    assert all(tuple(data) in gaps and data[0] == "idle" for data in unseen["customdata"])
    spans = sorted(
        (base, base + long) for base, long in zip(unseen["base"], unseen["x"], strict=True)
    )
    assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))
    # The last piece of each gap is 0.07 ms long, and reaches 0.2 ms into the kernel that follows.
    assert sum(end - start == pytest.approx(0.27) for start, end in spans) > 5


def test_what_an_overview_has_no_account_of_is_named_in_its_place(
    store: Path, shown: Picture
) -> None:
    trace = shown.trace
    parts = all_of(store, trace.id, [0])
    whole = timeline.whole(trace)
    assert not overview.overview("x", parts, trace, whole)["layout"]["annotations"]
    half = replace(parts, known=(parts.edges[0], (parts.edges[0] + parts.edges[-1]) // 2))
    (said,) = Figure(overview.overview("x", half, trace, whole)).layout.annotations
    assert said.text == overview.NOTHING
    assert 216 < said.x < 433

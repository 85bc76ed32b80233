"""Lines: what is unknown is a gap, limits are dashes, bytes have the units of all other words."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest

from whyidle.dashboard.figures import account
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.figures.lines import Limit, Line, lines
from whyidle.dashboard.views.causes import Causes
from whyidle.dashboard.views.series import Series
from whyidle.dashboard.views.time_range import TimeRange
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.slices import Slice

GIB = 1 << 30
SPAN = TimeRange(0, 10_000, is_live=False, name="1 all")
EVIL = "<img src=x onerror=alert(1)>"


def series_of(*values: float | None, name: str = "used", **more: Any) -> Series:
    times = tuple(range(len(values)))
    return Series(name, m.GPU_MEMORY_USED, times, values, values, values, **more)


def valid(figure: Figure) -> Figure:
    go.Figure(figure)
    return figure


def test_a_gap_stays_a_gap() -> None:
    figure = valid(lines("x", [Line(series_of(1.0, None, 3.0), "#000000")], "ratio", SPAN))
    assert figure["data"][0]["y"] == [1.0, None, 3.0]
    assert figure["data"][0]["connectgaps"] is False


def test_what_is_unknown_is_no_line() -> None:
    unknown = Series("gone", m.GPU_POWER, unknown="GPU lost")
    assert valid(lines("x", [Line(unknown, "#000000")], "watts", SPAN))["data"] == []


def test_bytes_have_binary_units_on_the_axis_and_under_the_pointer() -> None:
    figure = valid(lines("x", [Line(series_of(2 * GIB, 3.5 * GIB), "#000000")], "bytes", SPAN))
    assert figure["data"][0]["y"] == [2.0, 3.5]
    assert figure["layout"]["yaxis"]["ticksuffix"] == " GiB"
    assert figure["data"][0]["hovertemplate"].endswith(" GiB")


def test_a_limit_is_a_dash_across_the_span_and_makes_the_scale() -> None:
    drawn = [Line(series_of(1536.0), "#000000")]
    limit = Limit("limit 2.0 KiB", 2048)
    figure = valid(lines("x", drawn, "bytes", SPAN, limits=[limit]))
    dash = figure["data"][-1]
    assert (dash["y"], dash["line"]["dash"]) == ([2.0, 2.0], "dash")
    assert dash["x"] == figure["layout"]["xaxis"]["range"]


def test_a_limit_far_above_is_not_drawn_and_does_not_flatten_the_line() -> None:
    drawn = [Line(series_of(512.0), "#000000")]
    figure = valid(lines("x", drawn, "bytes", SPAN, limits=[Limit("limit", 1e9)]))
    assert len(figure["data"]) == 1
    assert figure["layout"]["yaxis"]["ticksuffix"] == " B"


@pytest.mark.parametrize(("share", "top"), [(0.004, 0.05), (0.5, 0.6), (1.0, 1.02)])
def test_an_axis_of_shares_fits_what_it_shows(share: float, top: float) -> None:
    figure = valid(lines("x", [Line(series_of(share), "#000000")], "ratio", SPAN))
    assert figure["layout"]["yaxis"]["range"] == pytest.approx([0, top])


def test_a_limit_without_a_line_is_not_drawn() -> None:
    assert lines("x", [], "bytes", SPAN, limits=[Limit("limit", 1.0)])["data"] == []


def test_a_band_lies_between_the_least_and_the_most() -> None:
    several = Series("mean", m.GPU_POWER, (0, 1), (2.0, 3.0), (1.0, 2.0), (3.0, 4.0))
    figure = valid(lines("x", [Line(several, "#123456", band=True)], "watts", SPAN))
    low, high, mean = figure["data"]
    assert (low["y"], high["y"], mean["y"]) == ([1.0, 2.0], [3.0, 4.0], [2.0, 3.0])
    assert high["fill"] == "tonexty"
    assert not low["showlegend"]


def test_another_choice_of_the_reader_forgets_the_zoom_and_time_alone_does_not() -> None:
    def revision(span: TimeRange) -> str:
        return str(lines("x", [], "watts", span)["layout"]["uirevision"])

    later = TimeRange(5_000, 15_000, is_live=True, name=SPAN.name)
    assert revision(SPAN) == revision(later)
    assert revision(SPAN) != revision(TimeRange(0, 10_000, is_live=False, name="1 5m"))
    assert revision(SPAN) != revision(SPAN.around(5_000))


def test_names_are_text_and_no_markup() -> None:
    drawn = [Line(series_of(1.0, name=EVIL), "#000000")]
    mark = {"ts_ms": 5, "kind": "compiled", "colour": "#000000", "text": EVIL}
    causes = Causes([0], {Slice.COMPUTE: [1.0]}, is_of_steps=True)
    figures = [lines("x", drawn, "ratio", SPAN), account.over_time("y", causes, SPAN, [mark])]
    for figure in figures:
        valid(figure)
        assert "<img" not in str(figure)
        assert "&lt;img" in str(figure)


@pytest.mark.parametrize("is_of_steps", [True, False])
def test_causes_are_stacked_with_their_own_colours(is_of_steps: bool) -> None:
    parts = {Slice.COMPUTE: [0.2, None], Slice.IDLE_INPUT: [0.3, None]}
    figure = valid(account.over_time("y", Causes([0, 1], parts, is_of_steps), SPAN))
    first, second = figure["data"]
    assert first["stackgroup"] == second["stackgroup"]
    assert first["fillcolor"] != second["fillcolor"]


def test_where_nothing_is_known_causes_have_no_height_and_say_so() -> None:
    causes = Causes([0, 1000, 2000], {Slice.COMPUTE: [0.2, None, 0.3]}, is_of_steps=True)
    (area,) = valid(account.over_time("y", causes, SPAN))["data"]
    assert area["line"]["shape"] == "hv"
    assert [x - area["x"][0] for x in area["x"]] == [0, 1000, 2000, 3000]
    assert area["y"] == [0.2, 0, 0.3, 0]
    assert [text == "not known" for text in area["hovertemplate"]] == [False, True, False, True]


def test_rows_that_come_a_little_late_are_no_gap() -> None:
    times = [0, 1000, 2001, 3003, 4003, 5003]
    causes = Causes(times, {Slice.COMPUTE: [0.2] * 6}, is_of_steps=True)
    (area,) = valid(account.over_time("y", causes, SPAN))["data"]
    assert [x - area["x"][0] for x in area["x"]] == [*times, 6003]


def test_an_area_ends_where_the_next_moment_is_missing() -> None:
    causes = Causes([0, 1000, 5000], {Slice.COMPUTE: [0.2, 0.2, 0.3]}, is_of_steps=True)
    (area,) = valid(account.over_time("y", causes, SPAN))["data"]
    assert [x - area["x"][0] for x in area["x"]] == [0, 1000, 2000, 5000, 6000]
    assert area["y"] == [0.2, 0.2, 0, 0.3, 0]


def test_the_name_of_a_device_is_no_markup() -> None:
    budget = {"slices": {"compute": 1}}
    figure = account.bar("x", {"<a href='http://evil.example'>GPU</a>": budget})
    assert "<" not in figure["data"][0]["y"][0]


def test_marks_are_rules_and_points_with_text() -> None:
    marks = [{"ts_ms": i, "kind": "compiled", "colour": "#000000", "text": f"{i}"} for i in (1, 2)]
    causes = Causes([0], {Slice.COMPUTE: [1.0]}, is_of_steps=True)
    figure = valid(account.over_time("y", causes, SPAN, marks))
    assert len(figure["layout"]["shapes"]) == 2
    assert figure["data"][-1]["text"] == ["1", "2"]


def test_a_budget_is_a_bar_whose_parts_are_shares() -> None:
    budget = {"slices": {"compute": 25, "idle_input": 75, "idle_gc": 0}}
    figure = valid(account.bar("budget", {"now": budget}))
    assert [trace["x"] for trace in figure["data"]] == [[0.25], [0.75]]


def test_less_than_one_a_second_is_shown_in_tenths_and_not_in_thousandths() -> None:
    drawn = valid(lines("x", [Line(series_of(0.5, 0.25), "#000000")], "per_second", SPAN))
    assert "s" not in drawn["layout"]["yaxis"]["tickformat"]
    assert "s}" not in drawn["data"][0]["hovertemplate"].removesuffix("}")
    assert drawn["data"][0]["hovertemplate"] == "%{y:,.4~r}"

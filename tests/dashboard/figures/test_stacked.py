"""Charts over one axis: one zoom, one legend for each, nothing named that is not seen."""

from __future__ import annotations

import html
import re
from itertools import pairwise

from tests.dashboard.figures.test_lines import SPAN, series_of, valid
from whyidle.dashboard.figures.lines import Line, lines
from whyidle.dashboard.figures.stacked import Row, height, stacked


def row(title: str, *values: float, note: str = "") -> Row:
    drawn = [Line(series_of(value, name=f"at {value:g}"), "#123456") for value in values]
    return Row(title, lines(title, drawn, "count", SPAN), note)


def said(figure: dict) -> list[str]:  # type: ignore[type-arg]
    return [html.unescape(re.sub("<[^>]+>", "", each["text"]))
            for each in figure["layout"]["annotations"]]  # fmt: skip


def test_rows_share_the_axis_of_time_and_do_not_overlap() -> None:
    rows = [row("one", 1.0), row("two", 2.0), row("three", 3.0)]
    layout = valid(stacked("story", rows, SPAN))["layout"]
    places = [layout[f"yaxis{each}"]["domain"] for each in ("", 2, 3)]
    assert all(low > above for (low, _), (_, above) in pairwise(places))
    assert layout["xaxis"]["anchor"] == "y3"
    assert "xaxis2" not in layout
    assert height(rows) > height(rows[:1])


def test_what_cannot_be_seen_has_no_name_and_a_line_alone_needs_none() -> None:
    assert said(stacked("x", [row("high and low", 100.0, 60.0, 0.1)], SPAN)) == [
        "high and low   ━ at 100   ━ at 60"
    ]
    assert said(stacked("x", [row("one", 1.0, note="1 W")], SPAN)) == ["one", "1 W"]


def test_names_from_a_job_are_no_markup() -> None:
    figure = stacked("x", [row("<a href=x>", 1.0)], SPAN)
    assert "<a" not in figure["layout"]["annotations"][0]["text"]

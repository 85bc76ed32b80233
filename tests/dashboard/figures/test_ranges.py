"""Ranges of speed-ups as a chart."""

from __future__ import annotations

from plotly.graph_objects import Figure

from whyidle.dashboard import theme
from whyidle.dashboard.figures.ranges import height, ranges
from whyidle.dashboard.views.findings import Range

PREDICTED = Range("predicted", 1.8, 2.3, theme.GREY)
MEASURED = Range("measured", 1.9, 2.1, theme.BETTER, 2.0)


def test_each_range_lies_between_its_ends() -> None:
    bars, middles = Figure(ranges("gains", [PREDICTED, MEASURED])).data
    assert [round(b + x, 6) for b, x in zip(bars.base, bars.x, strict=True)] == [2.3, 2.1]
    assert list(bars.base) == [1.8, 1.9]
    assert list(middles.x) == [2.0]
    assert bars.text[0] == "1.80x to 2.30x"
    assert bars.text[1] == "2.00x (1.90x to 2.10x)"


def test_as_fast_as_now_is_always_on_the_scale() -> None:
    for given in ([PREDICTED], [Range("measured", 0.6, 0.8, theme.WORSE, 0.7)]):
        shown = Figure(ranges("gains", given)).layout
        assert shown.xaxis.range[0] <= min(1.0, given[0].low)
        assert shown.xaxis.range[1] > max(1.0, given[0].high)


def test_a_range_without_width_is_seen() -> None:
    (bars, _) = Figure(ranges("gains", [Range("measured", 2.0, 2.0, theme.BETTER, 2.0)])).data
    assert bars.x[0] > 0


def test_a_name_from_a_job_is_no_markup() -> None:
    given = Range("<b onclick=x>" + "y" * 100, 1.1, 1.2, theme.GREY)
    (words,) = Figure(ranges("gains", [given])).layout.yaxis.ticktext
    assert "<" not in words
    assert words.endswith("…")


def test_more_ranges_need_more_room() -> None:
    assert height([PREDICTED] * 3) > height([PREDICTED])

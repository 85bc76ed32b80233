"""Both budgets to one scale, and what each part gained or lost."""

from __future__ import annotations

from plotly.graph_objects import Figure

from whyidle.dashboard import theme
from whyidle.dashboard.figures.difference import budgets, changes
from whyidle.dashboard.views.comparison import Change
from whyidle.monitor.core.slices import LOOKS, Slice

LESS = Change("idle: input", "39.2 ms", "17.3 ms", "-22.0 ms", "better", -0.022)
MORE = Change("compute", "4.49 ms", "6.58 ms", "+2.09 ms", "worse", 0.00209)
SAME = Change("idle: gc", "1 ms", "1 ms", "-4 ns", "same", -4e-9)
UNKNOWN = Change("copies", "–", "1 ms", "–", "unknown")  # noqa: RUF001


def test_better_and_worse_differ_in_colour_in_sign_and_in_words() -> None:
    (bars,) = Figure(changes("changes", [LESS, MORE, SAME, UNKNOWN], 0.04)).data
    assert list(bars.marker.color) == [theme.BETTER, theme.WORSE, theme.GREY]
    assert list(bars.x) == [-0.022, 0.00209, -4e-9]
    assert list(bars.text) == ["-22.0 ms", "+2.09 ms", "-4 ns"]
    assert "better" in bars.customdata[0]
    assert "worse" in bars.customdata[1]


def test_zero_is_in_the_middle_so_that_sides_are_distinct() -> None:
    low, high = Figure(changes("changes", [LESS], 0.04)).layout.xaxis.range
    assert low == -high
    assert low < -0.022


def test_a_small_change_looks_small_beside_the_whole() -> None:
    (_, high) = Figure(changes("changes", [SAME], 0.04)).layout.xaxis.range
    assert high > 0.004


def test_what_is_not_known_has_no_bar() -> None:
    (bars,) = Figure(changes("changes", [UNKNOWN], 0.04)).data
    assert bars.x in (None, ())


def test_the_faster_side_has_the_shorter_bar_and_causes_their_own_colours() -> None:
    accounts = {
        "A": {Slice.COMPUTE: 0.010, Slice.IDLE_INPUT: 0.030},
        "B": {Slice.COMPUTE: 0.010},
    }
    shown = Figure(budgets("budgets", accounts))
    assert {bar.name: bar.marker.color for bar in shown.data} == {
        LOOKS[part].words: LOOKS[part].colour for part in (Slice.COMPUTE, Slice.IDLE_INPUT)
    }
    ends = [sum(bar.x[i] for bar in shown.data) for i in range(2)]
    assert ends == [0.040, 0.010]


def test_a_part_too_small_to_see_has_no_place_in_the_legend() -> None:
    accounts = {"A": {Slice.COMPUTE: 1.0, Slice.IDLE_GC: 1e-5}}
    assert len(Figure(budgets("budgets", accounts)).data) == 1

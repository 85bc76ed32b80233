"""How the time of a step spreads, two runs over each other."""

from __future__ import annotations

import pytest
from plotly.graph_objects import Figure

from whyidle.dashboard.figures.distribution import BINS, steps
from whyidle.dashboard.views.comparison import Distribution


def spread(*values: float, name: str = "A: run 1", **more: float | None) -> Distribution:
    bounds = {"mean": values[0], "low": None, "high": None, **more}
    return Distribution(name, values, tuple(20.0 for _ in values), of="", **bounds)  # type: ignore[arg-type]


def test_each_side_has_all_of_its_steps() -> None:
    sides = [spread(0.02, 0.021, 0.03), spread(0.01, 0.012, 0.5, name="B: run 2")]
    for bars in Figure(steps("steps", sides)).data:
        assert len(bars.x) == BINS
        assert sum(bars.y) == pytest.approx(1.0, abs=1e-4)


def test_both_are_counted_on_the_same_scale() -> None:
    a, b = Figure(steps("steps", [spread(0.02, 0.03), spread(0.01)])).data
    assert list(a.x) == list(b.x)


def test_a_step_counts_as_often_as_it_was_seen() -> None:
    side = Distribution("A", (0.01, 0.02), (90.0, 10.0), 0.011, None, None, "")
    (bars,) = Figure(steps("steps", [side])).data
    assert max(bars.y) == pytest.approx(0.9)


def test_the_mean_has_its_line_and_its_bounds_a_band() -> None:
    with_bounds = spread(0.02, 0.03, low=0.019, high=0.022)
    kinds = [shape.type for shape in Figure(steps("steps", [with_bounds])).layout.shapes]
    assert kinds == ["rect", "line"]
    assert len(Figure(steps("steps", [spread(0.02)])).layout.shapes) == 1


def test_steps_that_are_all_alike_can_be_drawn() -> None:
    (bars,) = Figure(steps("steps", [spread(0.02, 0.02)])).data
    assert sum(bars.y) == pytest.approx(1.0)


def test_a_label_of_a_run_is_no_markup() -> None:
    (bars,) = Figure(steps("steps", [spread(0.02, name="A: <i>x</i>")])).data
    assert "<" not in bars.name

"""The intervals: they cover the truth as often as they claim, always the same for the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from whyidle.monitor.compare import bootstrap
from whyidle.monitor.compare.bootstrap import LEAST, Compared, Interval, Samples

# Of so many tries one in twenty may miss; a share below this would be a defect.
TRIES = 100
COVERED = 0.88


def width(found: Interval) -> float:
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


@pytest.mark.parametrize("statistic", [bootstrap.medians, bootstrap.means])
@pytest.mark.parametrize("number", [6, 30])
def test_the_interval_of_the_ratio_holds_the_truth_as_often_as_it_claims(
    statistic: Callable[[Samples, Samples], Compared], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 500)
    rng = np.random.default_rng(number)
    held = 0
    for _ in range(TRIES):
        a, b = (Samples.of(rng.normal(ms, 0.1 * ms, number).tolist()) for ms in (30.0, 20.0))
        held += not statistic(a, b).ratio.excludes(1.5)
    assert held >= COVERED * TRIES


def test_it_is_the_same_each_time() -> None:
    a, b = Samples.of([5.0, 6, 7, 8, 9, 10]), Samples.of([4.0, 5, 6, 7, 8, 8])
    assert bootstrap.medians(a, b) == bootstrap.medians(a, b)


def test_the_more_samples_the_narrower_it_is() -> None:
    rng = np.random.default_rng(3)
    few, many = (Samples.of(rng.normal(10, 1, n).tolist()) for n in (10, 400))
    narrow, wide = bootstrap.means(many, many).a, bootstrap.means(few, few).a
    assert width(narrow) < width(wide) / 3


def test_neighbours_that_are_alike_widen_it() -> None:
    """A job that is slow for a while and fast for a while shows less than one that changes."""
    slow_then_fast = Samples.of([10.0] * 25 + [12.0] * 25)
    by_turns = Samples.of([10.0, 12.0] * 25)
    widths = []
    for samples in (slow_then_fast, by_turns):
        found = bootstrap.means(samples, samples).a
        widths.append(width(found))
    assert widths[0] > 1.5 * widths[1]


def test_too_few_have_no_bounds_and_say_why() -> None:
    few, enough = Samples.of([1.0] * (LEAST - 1)), Samples.of([2.0] * LEAST)
    found = bootstrap.medians(few, enough)
    assert found.a.ends == [None, 1.0, None]
    assert found.b.ends == [2.0, 2.0, 2.0]
    assert found.ratio.ends == [None, 0.5, None]
    assert found.ratio.why_no_bounds == "4 samples of the time of a step: too few"


@pytest.mark.parametrize(
    ("values", "weights", "median"),
    [
        ([1.0, 2, 3], None, 2),
        ([1.0, 2, 3, 4], None, 2.5),
        ([1.0, 100], [3.0, 1], 1),
        ([5.0], [7.0], 5),
    ],
)
def test_the_median_counts_weights(
    values: list[float], weights: list[float] | None, median: float
) -> None:
    assert Samples.of(values, weights).median == median

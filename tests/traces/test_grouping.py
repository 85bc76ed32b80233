"""Columns in order, and their distinct values, by quicker ways than NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

from whyidle.monitor.traces.grouping import numbered, order_of, present


@pytest.mark.parametrize("values", [1, 3, 50, 10**12])
def test_the_order_is_that_of_lexsort(values: int) -> None:
    rng = np.random.default_rng(values)
    for rows in (0, 1, 2, 7, 400):
        first, then = rng.integers(-values, values, rows), rng.integers(-values, values, rows)
        for column in (first, np.sort(first)):
            assert order_of(column, then).tolist() == np.lexsort((then, column)).tolist()


@pytest.mark.parametrize("values", [1, 50, 10**12])
def test_distinct_values_are_those_of_unique(values: int) -> None:
    column = np.random.default_rng(values).integers(-values, values, 300)
    found, which = np.unique(column, return_inverse=True)
    assert present(column) == found.tolist()
    mine, mine_of = numbered(column)
    assert (mine.tolist(), mine_of.tolist()) == (found.tolist(), which.tolist())

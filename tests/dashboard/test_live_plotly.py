"""What a browser sends about a chart is taken as what it should be, or not at all."""

from __future__ import annotations

import math

import pytest

from whyidle.dashboard import live_plotly


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([1, 2.5], (1.0, 2.5)), ([], ()), (None, None), ([2, 1], None), ([1, 1], None),
        (["1", "2"], None), ([1], None), ([1, 2, 3], None), ({"0": 1}, None), ("12", None),
        ([math.nan, 1], None), ([0, math.inf], None), ([None, 1], None),
    ],
    ids=str,
)  # fmt: skip
def test_a_zoom_is_two_numbers_in_order_or_all_there_is(sent: object, expected: object) -> None:
    assert live_plotly._range(sent) == expected

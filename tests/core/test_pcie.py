"""What a PCIe link can carry, as its specification has it."""

from __future__ import annotations

import pytest

from whyidle.monitor.core import pcie


@pytest.mark.parametrize(
    ("generation", "width", "gigabytes"),
    [(1, 16, 4.0), (2, 8, 4.0), (3, 16, 15.754), (4, 16, 31.508), (5, 16, 63.015), (6, 16, 121.0)],
)
def test_a_link_carries_what_its_lanes_do(generation: int, width: int, gigabytes: float) -> None:
    limit = pcie.limit(generation, width)
    assert limit is not None
    assert limit / 1e9 == pytest.approx(gigabytes, rel=1e-3)


@pytest.mark.parametrize(("generation", "width"), [(None, 16), (4, None), (9, 16), (4, 0)])
def test_a_link_that_is_not_known_has_no_limit(
    generation: float | None, width: float | None
) -> None:
    assert pcie.limit(generation, width) is None

"""What both sides of the link must agree on: how a moment is named on two clocks."""

from __future__ import annotations

import time
from typing import NamedTuple


class ClockPair(NamedTuple):
    """One moment on both clocks, so that records of either side meet on one time line."""

    monotonic_ns: int
    realtime_ns: int
    error_ns: int


def clock_pair(tries: int = 5) -> ClockPair:
    """Read both clocks as close together as possible: the tightest of a few tries."""
    best: ClockPair | None = None
    for _ in range(tries):
        before = time.monotonic_ns()
        realtime = time.time_ns()
        width = time.monotonic_ns() - before
        if best is None or width < best.error_ns:
            best = ClockPair(before + width // 2, realtime, width)
    assert best is not None  # noqa: S101  tries is at least one
    return best

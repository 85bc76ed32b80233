from __future__ import annotations

import time

from whyidle.agents.wire import clock_pair


def test_both_clocks_are_read_at_one_moment() -> None:
    before, pair, after = time.monotonic_ns(), clock_pair(), time.monotonic_ns()
    assert before <= pair.monotonic_ns <= after
    assert 0 <= pair.error_ns < 1_000_000_000
    # Both name the same moment: the distance between the clocks is the machine's own.
    distance = time.time_ns() - time.monotonic_ns()
    assert abs(pair.realtime_ns - pair.monotonic_ns - distance) < 1_000_000_000

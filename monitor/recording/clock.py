"""Moments on the wall clock, as every row of a recording names them."""

from __future__ import annotations

from whyidle.agents.wire import clock_pair

LEAP_NS = 1_000_000_000


class WallClock:
    """Names moments of the monotonic clock.

    A clock that is set back must not fold time: then ours goes on. One that leaps ahead (the
    machine slept, the clock was set) is followed.
    """

    def __init__(self) -> None:
        self.pair = clock_pair()

    def follow(self) -> float:
        """Return by how many seconds the clock has leapt ahead, as of this very moment."""
        # Both clocks at one moment: we may have been stopped since the tick began.
        pair = clock_pair()
        ahead = pair.realtime_ns - self.pair.realtime_ns
        ahead -= pair.monotonic_ns - self.pair.monotonic_ns
        if ahead <= LEAP_NS:
            return 0.0
        self.pair = pair
        return ahead / 1e9

    def ms(self, moment: float) -> int:
        """Name a moment."""
        return self._named_ns(moment) // 1_000_000

    def _named_ns(self, moment: float) -> int:
        return self.pair.realtime_ns + int(moment * 1e9) - self.pair.monotonic_ns

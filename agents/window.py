"""How long a trace may be: what its end costs is learned from short ones, and kept in bounds."""

from __future__ import annotations

# Aim below the bound by this much: jobs are not even.
CARE = 0.7
# No window is longer than the one before by more: a job may have rested just then.
GROWTH = 4
# One that has at least this share of what can be had is good enough.
ENOUGH = 0.5
# What a short one has seen is half forgotten with each that was cheaper.
FORGET = 0.5


class Window:
    """The length of the next window of one tracer, in nanoseconds."""

    __slots__ = ("_cost", "_last", "bound_ns", "late_ns")

    def __init__(self, first_ns: int, bound_ns: int) -> None:
        # What the end of a trace may cost at most.
        self.bound_ns = bound_ns
        # How much longer than meant the last ones were: others had Python's lock.
        self.late_ns = 0
        self._last = first_ns // GROWTH
        # For each nanosecond of a window.
        self._cost: float | None = None

    def next_ns(self, wanted_ns: int) -> int:
        """Return the length of the next one; 0 where even the shortest would cost too much."""
        longest = min(wanted_ns, self._last * GROWTH)
        return max(0, min(longest, self._affordable_ns() - self.late_ns))

    def learn(self, meant_ns: int, was_ns: int, cost_ns: int) -> None:
        """Note what the end of a window cost."""
        cost = cost_ns / max(1, was_ns)
        self._cost = cost if self._cost is None else max(cost, self._cost * FORGET)
        self._last = max(1, meant_ns)
        self.late(was_ns - meant_ns)

    def late(self, late_ns: int) -> None:
        """Note how late something came."""
        self.late_ns = max(0, late_ns, int(self.late_ns * FORGET))

    def is_enough(self, was_ns: int, wanted_ns: int) -> bool:
        """Tell whether a longer one is not worth another try."""
        return was_ns >= ENOUGH * min(wanted_ns, self._affordable_ns() - self.late_ns)

    def _affordable_ns(self) -> int:
        if self._cost is None:
            return 1 << 62
        return int(CARE * self.bound_ns / max(self._cost, 1e-9))

"""How long a trace may be: short ones show what its end costs, which must stay in bounds."""

from __future__ import annotations

# Aim below the bound by this much: jobs vary, and so do machines that do other work, too.
CARE = 0.6
# No window is longer than the one before by more: the job may have been idle just then.
GROWTH = 3
# One that has at least this share of what can be had is good enough.
ENOUGH = 0.5
# The most expensive one counts; each cheaper one reduces it by so much.
FORGET = 0.1
# Lateness is forgotten sooner: others hold Python's lock for moments.
FORGET_LATE = 0.5


class TraceWindow:
    """The length of the next window of one tracer, in nanoseconds."""

    __slots__ = ("_cost", "_first", "_last", "bound_ns", "late_ns")

    def __init__(self, first_ns: int, bound_ns: int) -> None:
        # What the end of a trace may cost at most.
        self.bound_ns = bound_ns
        # How much longer than intended the last ones were: others had Python's lock.
        self.late_ns = 0
        self._first = first_ns
        self._last = first_ns // GROWTH
        # For each nanosecond of a window.
        self._cost: float | None = None

    def next_ns(self, wanted_ns: int) -> int:
        """Return the length of the next one; 0 where even the shortest would cost too much."""
        longest = min(wanted_ns, self._last * GROWTH)
        return max(0, min(longest, self._affordable_ns() - self.late_ns))

    def learn(self, meant_ns: int, was_ns: int, cost_ns: int) -> None:
        """Note what the end of a window cost."""
        # One that was cut short, as by a fork, costs what any end does, however short it was.
        cost = cost_ns / max(1, was_ns, min(meant_ns, self._first))
        self._cost = cost if self._cost is None else max(cost, self._cost * (1 - FORGET))
        self._last = max(1, meant_ns)
        self.late(was_ns - meant_ns)

    def late(self, late_ns: int) -> None:
        """Note by how much something was late."""
        self.late_ns = max(0, late_ns, int(self.late_ns * (1 - FORGET_LATE)))

    def is_late(self, wanted_ns: int, least_ns: int) -> bool:
        """Tell whether lateness alone makes the next one shorter than ``least_ns``."""
        in_time = min(wanted_ns, self._last * GROWTH, self._affordable_ns())
        return self.next_ns(wanted_ns) < least_ns <= in_time

    def spare_ns(self, meant_ns: int) -> int:
        """Return how much longer than intended one may get before its end costs too much."""
        return max(0, self._affordable_ns(1.0) - meant_ns)

    def refuse(self) -> None:
        """Note that there was none; not for good: the last may have been costly by chance."""
        if self._cost is not None:
            self._cost *= 1 - FORGET

    def is_enough(self, was_ns: int, wanted_ns: int) -> bool:
        """Tell whether trying a longer one is not worth it."""
        return was_ns >= ENOUGH * min(wanted_ns, self._affordable_ns() - self.late_ns)

    def _affordable_ns(self, share: float = CARE) -> int:
        if self._cost is None:
            return 1 << 62
        return int(share * self.bound_ns / max(self._cost, 1e-9))

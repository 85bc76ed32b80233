"""When to take a trace unasked: seldom, and only if it may show something new.

A GPU that is known to be busy gives reason for one alone, which shows what it computes: a busy GPU
may multiply in a precision that nobody needs. A GPU that idles, or that nobody measures, gives
reason for more; traces then come at most as often as their share of the job's time allows, and ever
less often while each shows the same. A process that refuses is asked again later, and given up if
its reason stays the same.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from whyidle.monitor.core.slices import Slice

# The share of the job's time for traces: their windows, ends, and writing.
SHARE: Final = 0.01
# How long a sign must hold.
STARVED_SECONDS: Final = 10.0
# Means over that time below which a GPU may be waiting for its job: the driver counts a moment as
# busy if any kernel ran, SM activity counts how much of the chip was busy.
LOW_UTILISATION: Final = 0.8
LOW_SM_ACTIVITY: Final = 0.5
# After we attach, a job may still compile, or fill its caches.
SETTLED_SECONDS: Final = 10.0
LEAST_SECONDS: Final = 30.0
SELDOM_SECONDS: Final = 300.0
# One without a whole step is a random part of the loop: a few of them say what one does not.
MOST_PARTS: Final = 5
BETWEEN_PARTS_SECONDS: Final = 3.0
# Two budgets whose slices differ by no more than this count as the same.
SAME: Final = 0.05
AGAIN_SECONDS: Final = (10.0, 30.0, 60.0, 120.0, 300.0)
MOST_REFUSALS: Final = 6
MOST_KNOWN: Final = 100
# A window holds a few steps, if their length is known.
LEAST_WINDOW, MOST_WINDOW, STEPS_IN_WINDOW = 0.25, 2.0, 4


class Outcome(NamedTuple):
    """What a trace came to: its cost to the job in seconds, its budget, and its whole steps."""

    cost: float
    budget: Mapping[str, int]
    steps: int


class _Refused(NamedTuple):
    """A process's refusals: why, how often for that reason and in a row, and when to ask again."""

    reason: str
    same: int
    times: int
    due: float


_NEVER: Final = _Refused("", 0, 0, 0.0)
_FIGURES: Final = re.compile(r"\d+")


class Sign:
    """Whether the job's GPUs have been waiting for it."""

    def __init__(self, held: float = STARVED_SECONDS) -> None:
        self._held = held
        self._looks: deque[tuple[float, bool]] = deque()

    def look(self, now: float, *, low: bool | None) -> bool | None:
        """Take one sample; return whether it has held long enough, ``None`` if unknown.

        ``low``: whether a GPU of the job does little; ``None`` if not measured.
        """
        if low is None:
            self._looks.clear()
            return None
        self._looks.append((now, low))
        while len(self._looks) > 1 and now - self._looks[1][0] >= self._held:
            self._looks.popleft()
        if now - self._looks[0][0] < self._held:
            return False
        return 2 * sum(low for _, low in self._looks) > len(self._looks)


class Policy:
    """The policy for one job. All moments are seconds of the monotonic clock."""

    def __init__(self, share: float = SHARE) -> None:
        self.share = share
        self._due = 0.0
        self._wait = LEAST_SECONDS
        self._before: dict[str, float] | None = None
        self._parts = 0
        # Looks at a GPU that is busy: until one shows its work.
        self._looks_left = MOST_PARTS
        self._refused: dict[object, _Refused] = {}

    def wants(self, now: float, *, starved: bool | None) -> bool:
        """Tell whether it is time for a trace."""
        is_new = starved is not False or self._looks_left > 0
        return self.share > 0 and now >= self._due and is_new

    def may_ask(self, who: object, now: float) -> bool:
        """Tell whether a process is worth asking."""
        found = self._refused.get(who)
        return found is None or (found.same < MOST_REFUSALS and now >= found.due)

    def taken(self, who: object, now: float, found: Outcome, *, starved: bool | None) -> None:
        """Note a trace; ``starved``: as it was wanted."""
        self._refused.pop(who, None)
        if starved is False:
            is_shown = found.budget.get(Slice.COMPUTE, 0) > 0
            self._looks_left = 0 if is_shown else self._looks_left - 1
        self._parts = 0 if found.steps else self._parts + 1
        if 0 < self._parts < MOST_PARTS:
            self._due = now + max(BETWEEN_PARTS_SECONDS, self._pause(found.cost))
            return
        shares = _shares(found.budget)
        self._wait = min(2 * self._wait, SELDOM_SECONDS) if self._is_same(shares) else LEAST_SECONDS
        self._before = shares
        wait = SELDOM_SECONDS if starved is None else self._wait
        self._due = now + max(wait, self._pause(found.cost))

    def refused(self, who: object, now: float, why: str) -> bool:
        """Note a refusal; return whether this process is now given up."""
        before = self._refused.get(who, _NEVER)
        reason = plain(why)
        same = before.same + 1 if reason == before.reason else 1
        wait = AGAIN_SECONDS[min(before.times, len(AGAIN_SECONDS) - 1)]
        self._refused[who] = _Refused(reason, same, before.times + 1, now + wait)
        return same == MOST_REFUSALS

    def failed(self, now: float, cost: float) -> None:
        """Note a trace that was taken but is of no use."""
        self._wait = min(2 * self._wait, SELDOM_SECONDS)
        self._due = now + max(self._wait, self._pause(cost))

    def later(self, now: float) -> None:
        """Note that it was too early."""
        self._due = now + LEAST_SECONDS

    def keep_only(self, known: Collection[object]) -> None:
        """Forget the refusals of other processes, if there are many."""
        if len(self._refused) > MOST_KNOWN:
            self._refused = {who: r for who, r in self._refused.items() if who in known}

    def _pause(self, cost: float) -> float:
        return cost / self.share if self.share else 0.0

    def _is_same(self, shares: dict[str, float]) -> bool:
        if self._before is None:
            return False
        names = shares.keys() | self._before.keys()
        return all(abs(shares.get(n, 0.0) - self._before.get(n, 0.0)) <= SAME for n in names)


def plain(why: str) -> str:
    """Return a reason without its figures: they change while the reason stays the same."""
    return _FIGURES.sub("#", why)


def window(step_seconds: float | None) -> float:
    """Return how long a trace should be."""
    if step_seconds is None:
        return LEAST_WINDOW
    return min(MOST_WINDOW, max(LEAST_WINDOW, STEPS_IN_WINDOW * step_seconds))


def _shares(budget: Mapping[str, int]) -> dict[str, float]:
    total = sum(budget.values())
    return {name: ns / total for name, ns in budget.items()} if total else {}

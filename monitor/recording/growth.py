"""How much totals grew over the last seconds.

What ends in one second may have lasted many: a rate from one look to the next would jump between
nothing and more than everything. Over some seconds it says how the job goes.
"""

from __future__ import annotations

from collections import deque

# Of one total; an agent tells each second.
MOST_KEPT = 150


class Growth:
    """The last values of each total."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def note(self, name: str, now: float, total: float) -> None:
        """Take in a total. One that has shrunk counts from the start."""
        seen = self._seen.setdefault(name, deque(maxlen=MOST_KEPT))
        if seen and (total < seen[-1][1] or now <= seen[-1][0]):
            seen.clear()
        seen.append((now, total))

    def over(self, name: str, seconds: float) -> tuple[float, float] | None:
        """Return what it grew by and in how many seconds: these, or as far back as is known."""
        seen = self._seen.get(name)
        if seen is None or len(seen) < 2:
            return None
        now, total = seen[-1]
        begin = seen[0]
        for moment in reversed(seen):
            begin = moment
            if now - moment[0] >= seconds:
                break
        return total - begin[1], now - begin[0]

"""When what comes all the time is kept as an event: soon and often at first, later each minute."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

# The first look for faults is to find what the agent said first.
FIRST_EVENT_NS = 5_000_000_000
# Events are kept for ever.
EVENT_NS = 10_000_000_000
LATER_EVENT_NS = 60_000_000_000
LATER = 60
# Of each list in an event; names of a common length fit in many times over.
EVENT_BYTES = 8192
# No sound agent comes near it; what a job can make us hold must be bounded.
MOST_COUNTED = 1_000_000


class Due:
    """Says when the next event is due; the time runs from the first thing that there is to tell."""

    def __init__(self) -> None:
        self._told, self._since_ns = 0, 0

    def now(self, now_ns: int, something: object, *, ending: bool) -> float | None:
        """Return over how many seconds to tell, if something is due to be told now."""
        if not something:
            self._since_ns = now_ns
            return None
        self._since_ns = self._since_ns or now_ns
        usual = EVENT_NS if self._told < LATER else LATER_EVENT_NS
        due = usual if self._told else FIRST_EVENT_NS
        since = now_ns - self._since_ns
        if since < due and not ending:
            return None
        self._since_ns = now_ns
        self._told += 1
        return since / 1e9


def kept(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first of the entries, as many as fit into an event."""
    found: list[dict[str, Any]] = []
    room = EVENT_BYTES
    for entry in entries:
        room -= len(json.dumps(entry))
        if room < 0:
            break
        found.append(entry)
    return found

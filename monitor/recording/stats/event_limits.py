"""Keeps the events of a run few: when the next one is due, and how many of a kind are kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.runs.summary import ROLLING

_E = TypeVar("_E", bound=Mapping[str, object])
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
    """Says when the next event is due; the time runs from the first thing to be stored."""

    def __init__(self) -> None:
        self._stored, self._since_ns = 0, 0

    def now(self, now_ns: int, something: object, *, ending: bool) -> float | None:
        """Return how many seconds an event that is due now covers; ``None`` where none is."""
        if not something:
            self._since_ns = now_ns
            return None
        self._since_ns = self._since_ns or now_ns
        usual = EVENT_NS if self._stored < LATER else LATER_EVENT_NS
        due = usual if self._stored else FIRST_EVENT_NS
        since = now_ns - self._since_ns
        if since < due and not ending:
            return None
        self._since_ns = now_ns
        self._stored += 1
        return since / 1e9


def kept(entries: Iterable[_E]) -> list[_E]:
    """Return the first of the entries, as many as fit into an event."""
    found: list[_E] = []
    room = EVENT_BYTES
    for entry in entries:
        room -= len(json.dumps(entry))
        if room < 0:
            break
        found.append(entry)
    return found


LEFT_OUT = "events_left_out"
# So many of a kind are kept one by one.
MOST_OF_A_KIND = 200
# Of these the summary is made: of the later ones still some are kept in each minute.
MOST_STACKS, STACKS_A_MINUTE = 2000, 2
MINUTE = 60.0
# How often it is said that there are more: each minute at first, later seldom.
SELDOM = 3600.0


class Quota:
    """Lets events through until there are many of their kind, then only counts them."""

    def __init__(self, root: ProcessKey) -> None:
        self._root = root
        self._kept: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        # Since when the latest are counted, and for how long.
        self._since: dict[str, tuple[float, float]] = {}
        # Of those that go on: how many since when.
        self._lately: dict[str, tuple[float, int]] = {}

    def admit(
        self, events: Iterable[JobEvent], now: float, *, ending: bool = False
    ) -> list[JobEvent]:
        """Return the events to keep, and how many more there were when that is due."""
        kept = []
        for event in events:
            if self._has_room(event.kind, now):
                self._kept[event.kind] += 1
                kept.append(event)
            else:
                self._left_out[event.kind] += 1
                self._since.setdefault(event.kind, (now, MINUTE))
        return [*kept, *self._counts(now, ending=ending)]

    def _has_room(self, kind: str, now: float) -> bool:
        if kind not in ROLLING:
            return self._kept[kind] < MOST_OF_A_KIND
        if self._kept[kind] < MOST_STACKS:
            return True
        since, count = self._lately.get(kind, (0.0, 0))
        if now - since >= MINUTE:
            since, count = now, 0
        self._lately[kind] = since, count + 1
        return count < STACKS_A_MINUTE

    def _counts(self, now: float, *, ending: bool) -> list[JobEvent]:
        found = []
        for kind, (since, seconds) in self._since.items():
            if (now - since < seconds and not ending) or not self._left_out[kind]:
                continue
            count = self._left_out.pop(kind)
            self._since[kind] = now, min(SELDOM, 2 * seconds)
            text = f"{count} more events of the kind '{kind}' in {now - since:.0f} s: only counted."
            data = {"kind": kind, "count": count, "seconds": round(now - since, 3)}
            found.append(JobEvent(LEFT_OUT, self._root, text, data=data, is_news=False))
        return found

"""Events for the marks of charts and for a list: compilations, traces, trouble."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from whyidle.dashboard import theme
from whyidle.dashboard.views.cache import remember
from whyidle.dashboard.views.time_range import TimeRange
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.summary import COMPILED, ROLLING
from whyidle.monitor.store import Event, Reader

# By the kind of event: its name in the legend and its colour.
KINDS: Final = {
    COMPILED: ("compiled", theme.CAUSES[Slice.IDLE_COMPILE]),
    "retrace_storm": ("recompiles", theme.CAUSES[Slice.IDLE_COMPILE]),
    "gc_pause": ("garbage collection", theme.CAUSES[Slice.IDLE_GC]),
    "trace_taken": ("trace", theme.GREY),
    "xid": ("GPU error", theme.ALARM),
    "gpu_lost": ("GPU lost", theme.ALARM),
}
# Facts that change all the time are not news.
_QUIET: Final = frozenset({*ROLLING, "framework", "short_lived"})
MOST: Final = 60
MOST_NEWS: Final = 12


@dataclass(frozen=True, slots=True)
class News:
    """Events for a list, and how many earlier ones it leaves out."""

    events: tuple[Event, ...]
    more: int


def marks(reader: Reader, run: int, span: TimeRange) -> list[dict[str, object]]:
    """Return the marks in a time range, the newest if there are too many."""
    found = [
        {"ts_ms": e.ts_ms, "kind": KINDS[e.kind][0], "colour": KINDS[e.kind][1], "text": e.text}
        for e in _happened(reader, run, span)
        if e.kind in KINDS
    ]
    return found[-MOST:]


def news(reader: Reader, run: int, span: TimeRange) -> News:
    """Return the events in a time range, the newest first."""
    found = _happened(reader, run, span)[::-1]
    return News(found[:MOST_NEWS], max(0, len(found) - MOST_NEWS))


def _happened(reader: Reader, run: int, span: TimeRange) -> tuple[Event, ...]:
    """Return the events in a time range, read at most once a second."""

    def ask() -> tuple[Event, ...]:
        events = reader.events(run, span.start_ms, without=_QUIET, most=10 * MOST)
        return tuple(event for event in events if event.ts_ms < span.end_ms)

    # Something may still be added to a run that is over, such as a trace.
    second = time.time_ns() // 1_000_000_000
    return remember((reader, run, "events", span, second), ask)

"""What happened at a moment, for charts to mark and for a list: compilations, traces, trouble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from whyidle.dashboard import look
from whyidle.dashboard.views.span import Span
from whyidle.monitor.slices import Slice
from whyidle.monitor.store import Event, Reader
from whyidle.monitor.summary import COMPILED, ROLLING

# By the kind of event: its name in the legend and its colour.
KINDS: Final = {
    COMPILED: ("compiled", look.CAUSES[Slice.IDLE_COMPILE]),
    "retrace_storm": ("compiles again and again", look.CAUSES[Slice.IDLE_COMPILE]),
    "gc_pause": ("collected garbage", look.CAUSES[Slice.IDLE_GC]),
    "trace_taken": ("trace", look.GREY),
    "xid": ("GPU error", look.VERMILION),
    "gpu_lost": ("GPU lost", look.VERMILION),
}
# Facts that change all the time, and are no news.
_QUIET: Final = frozenset({*ROLLING, "framework", "short_lived"})
MOST: Final = 60
MOST_NEWS: Final = 12


@dataclass(frozen=True, slots=True)
class News:
    """What happened, for a list; more than that lies before it."""

    events: tuple[Event, ...]
    more: int


def marks(reader: Reader, run: int, span: Span) -> list[dict[str, object]]:
    """Return the marks of a span, the newest where there are too many."""
    events = reader.events(run, span.start_ms, without=_QUIET, most=10 * MOST)
    found = [
        {"ts_ms": e.ts_ms, "kind": KINDS[e.kind][0], "colour": KINDS[e.kind][1], "text": e.text}
        for e in events
        if e.kind in KINDS and e.ts_ms < span.end_ms
    ]
    return found[-MOST:]


def news(reader: Reader, run: int, span: Span) -> News:
    """Return what happened in a span, the newest first."""
    events = reader.events(run, span.start_ms, without=_QUIET, most=10 * MOST)
    found = [event for event in events if event.ts_ms < span.end_ms][::-1]
    return News(tuple(found[:MOST_NEWS]), max(0, len(found) - MOST_NEWS))

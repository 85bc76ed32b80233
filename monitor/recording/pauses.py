"""Long pauses of the garbage collector: the longest of some is told."""

from __future__ import annotations

from collections import deque

from whyidle.monitor.link.records import LongGc
from whyidle.monitor.processes.events import JobEvent
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.due import EVENT_NS

LONG_PAUSE = "gc_pause"
# A pause that a person would feel as a stutter of a step.
FELT_PAUSE_NS = 50_000_000
MOST_WAITING = 200


class Pauses:
    """Takes the long pauses of one process."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        self._waiting: deque[tuple[int, LongGc]] = deque(maxlen=MOST_WAITING)
        self._told_ns: int | None = None

    def take(self, pause: LongGc, at_ns: int) -> None:
        """Take in one pause."""
        if pause.ns >= FELT_PAUSE_NS:
            self._waiting.append((at_ns, pause))

    def events(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Tell the longest of some pauses: a job may have one in every step."""
        rested = self._told_ns is None or now_ns - self._told_ns >= EVENT_NS
        if not self._waiting or not (rested or ending):
            return []
        at_ns, longest = max(self._waiting, key=lambda pause: pause[1].ns)
        others = len(self._waiting) - 1
        self._waiting.clear()
        self._told_ns = now_ns
        more = f", the longest of {others + 1}" if others else ""
        text = (
            f"Python's garbage collector held up process {self._key.pid} for"
            f" {longest.ns / 1e6:.0f} ms (generation {longest.generation}){more}."
        )
        data = {
            "ns": longest.ns,
            "generation": longest.generation,
            "collected": longest.collected,
            "others": others,
        }
        return [JobEvent(LONG_PAUSE, self._key, text, at=at_ns / 1e9, data=data)]

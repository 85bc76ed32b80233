"""Where a process reads values back from the device, as sampled; kept every few seconds."""

from __future__ import annotations

from typing import Any, TypeAlias

from whyidle.monitor.link.records import Read, Reads
from whyidle.monitor.processes.events import JobEvent
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.due import MOST_COUNTED, Due, kept
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.summary import READS

PLACES_KEPT = 20
MOST_PLACES = 200
# A record tells of some seconds; a read in each of some threads may wait as long.
MOST_NS = 10**12

# What is said of "now": a record comes every few seconds.
WINDOW_NS = 30_000_000_000

_Place: TypeAlias = tuple[str, str, int, str]


class Readbacks:
    """Takes the sampled reads of one process."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        self._due = Due()
        self._count, self._ns = 0, 0
        self._places: dict[_Place, list[int]] = {}
        # Of each place that was told lately: when it took how long.
        self._lately: dict[_Place, tuple[int, int, int]] = {}

    def top(self, now_ns: int) -> ReadBack | None:
        """Return the line that reads took longest at, of those that were told of lately."""
        for old in [p for p, (at, _, _) in self._lately.items() if now_ns - at > WINDOW_NS]:
            del self._lately[old]
        place = max(self._lately, key=lambda p: self._lately[p][2], default=None)
        return None if place is None else ReadBack(*place, *self._lately[place][1:])

    def take(self, reads: Reads, at_ns: int) -> None:
        """Take in one record."""
        for read in reads.places:
            count, ns = min(read.count, MOST_COUNTED), min(read.ns, MOST_NS)
            self._count += count
            self._ns += ns
            sums = self._sums(reads.kind, read)
            if sums is not None:
                sums[0] += count
                sums[1] += ns
                self._note(reads.kind, read, (at_ns, count, ns))

    def events(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Return what is due to be kept."""
        seconds = self._due.now(now_ns, self._count, ending=ending)
        if seconds is None:
            return []
        most = sorted(self._places.items(), key=lambda item: item[1], reverse=True)
        data = {
            "count": self._count,
            "ns": self._ns,
            "seconds": round(seconds, 3),
            "places": kept(_told(place, sums) for place, sums in most[:PLACES_KEPT]),
        }
        self._count, self._ns, self._places = 0, 0, {}
        text = f"Where process {self._key.pid} read values back from the device."
        return [JobEvent(READS, self._key, text, data=data, is_news=False)]

    def _note(self, kind: str, read: Read, seen: tuple[int, int, int]) -> None:
        place = _place(kind, read)
        if place is not None and (place in self._lately or len(self._lately) < MOST_PLACES):
            self._lately[place] = seen

    def _sums(self, kind: str, read: Read) -> list[int] | None:
        place = _place(kind, read)
        if place is None:
            return None
        if place not in self._places and len(self._places) >= MOST_PLACES:
            return None
        return self._places.setdefault(place, [0, 0])


def _place(kind: str, read: Read) -> _Place | None:
    frame = read.frame
    return None if frame is None else (kind, frame.file, frame.line, frame.function)


def _told(place: _Place, sums: list[int]) -> dict[str, Any]:
    kind, file, line, function = place
    told = {"kind": kind, "file": file, "line": line, "function": function}
    return {**told, "count": sums[0], "ns": sums[1]}

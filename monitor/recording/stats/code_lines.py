"""The lines of a process's code: where its main thread is, and where it reads values back."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.link.records import Frame, Read, Reads, StackCount, Stacks
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.recording.stats.event_limits import EVENT_BYTES, MOST_COUNTED, Due, kept
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.stacks import MOST_LOOKS, Chain, CodeLine, StackSamples
from whyidle.monitor.runs.summary import READS, SHORT_LIVED, STACKS, THREADS

# What a screen shows as "now".
WHERE_NS = 10_000_000_000
# Of an event: chains of lines need more room than other lists.
STACKS_BYTES = 2 * EVENT_BYTES
LINES_SHOWN = 5
TEXTS = {
    STACKS: "Where the main thread of process {} was.",
    THREADS: "Where the other threads of process {} were.",
    SHORT_LIVED: "Where processes were that process {} started and that hardly live.",
}
# Places of which a thread read; a job reads from few.
MOST_READS = 5
# Of one process between two events, and of lines that read.
MOST_CHAINS = MOST_PLACES = 200
MOST_RECENT = 30


class Where:
    """Takes the stacks of one process; says in each event who took them, if not its agent."""

    def __init__(self, key: ProcessKey, source: str | None = None, kind: str = STACKS) -> None:
        self._key = key
        self._source = source
        self._kind = kind
        # What threads that waited read from, since the last event.
        self._reads: Counter[str] = Counter()
        self._torn = 0
        self.lines: tuple[SourceLine, ...] = ()
        self.looks = 0
        self._recent: deque[tuple[int, Stacks]] = deque(maxlen=MOST_RECENT)
        self._since, self._holders = StackSamples(), StackSamples()
        self._span_ns = 0
        self._due = Due()

    def take(self, stacks: Stacks, at_ns: int, torn: int = 0) -> None:
        """Take in one record, and how many samples made no sense."""
        self._torn += torn
        self._recent.append((at_ns, _slim(stacks)))
        _add(self._since, stacks.samples, stacks.counts)
        _add(self._holders, sum(look.count for look in stacks.holders), stacks.holders)
        self._reads.update(stacks.reads)
        self._span_ns += min(stacks.span_ns, WHERE_NS)

    def look_back(self, now_ns: int) -> None:
        """Say where it was in the last seconds."""
        while self._recent and now_ns - self._recent[0][0] > WHERE_NS:
            self._recent.popleft()
        found = StackSamples()
        for _, stacks in self._recent:
            _add(found, stacks.samples, stacks.counts)
        self.lines, self.looks = found.lines(LINES_SHOWN), int(found.samples)

    def events(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Return what is due to be kept."""
        if self._due.now(now_ns, self._since.samples, ending=ending) is None:
            return []
        event = stacks_event(self._key, self._since, self._span_ns / 1e9, self._kind)
        if self._source is not None:
            more = {
                "source": self._source,
                "torn": self._torn,
                "holders": self._holders.packed(EVENT_BYTES),
                "reads": dict(self._reads.most_common(MOST_READS)),
            }
            event = replace(event, data={**(event.data or {}), **more})
        self._since, self._holders = StackSamples(), StackSamples()
        self._span_ns = self._torn = 0
        self._reads.clear()
        return [event]


def _slim(stacks: Stacks) -> Stacks:
    """Return what a screen shows of a record: the user's innermost lines."""
    looks = [StackCount(look.count, None, look.frames[:1]) for look in stacks.counts if look.frames]
    return Stacks(stacks.t, stacks.span_ns, stacks.samples, looks)


def _add(samples: StackSamples, number: int, counts: Iterable[StackCount]) -> None:
    samples.samples += min(number, MOST_COUNTED)
    # What goes on in the last of them counts as one look.
    samples.looks = min(MOST_LOOKS, samples.looks + 1)
    when = 1 << (samples.looks - 1)
    for look in counts:
        chain = Chain(
            tuple(_line(frame) for frame in look.frames),
            None if look.leaf is None else _line(look.leaf),
            None if look.called is None else _line(look.called),
            look.phase,
        )
        if chain in samples.chains or len(samples.chains) < MOST_CHAINS:
            count = min(look.count, MOST_COUNTED)
            known = min(look.known, count)
            waited = min(look.waited, known)
            locked, blocked = min(look.locked, known - waited), min(look.blocked, waited)
            samples.count(chain, count, known, waited, locked, blocked, when=when)


def _line(frame: Frame) -> CodeLine:
    return CodeLine(frame.file, frame.line, frame.function)


def stacks_event(
    key: ProcessKey, samples: StackSamples, seconds: float | None, kind: str = STACKS
) -> JobEvent:
    """Return the event that says where a main thread was, or other threads."""
    data = samples.packed(STACKS_BYTES)
    data["seconds"] = None if seconds is None else round(seconds, 3)
    text = TEXTS[kind].format(key.pid)
    return JobEvent(kind, key, text, data=data, is_news=False)


PLACES_KEPT = 20
# A record covers some seconds; in each of some threads a read may wait as long.
MOST_NS = 10**12

# What is said of "now": a record comes every few seconds.
WINDOW_NS = 30_000_000_000

_Read: TypeAlias = tuple[str, str, int, str]


class Readbacks:
    """Takes the sampled reads of one process."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        self._due = Due()
        self._count, self._ns = 0, 0
        self._places: dict[_Read, list[int]] = {}
        # Of each recent place: when, how often, and how long it took.
        self._lately: dict[_Read, tuple[int, int, int]] = {}

    def top(self, now_ns: int) -> ReadBack | None:
        """Return the line that reads took longest at, of the recent ones."""
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
            "places": kept(_entry(place, sums) for place, sums in most[:PLACES_KEPT]),
        }
        self._count, self._ns, self._places = 0, 0, {}
        text = f"Where process {self._key.pid} read values back from the device."
        return [JobEvent(READS, self._key, text, data=data, is_news=False)]

    def _note(self, kind: str, read: Read, seen: tuple[int, int, int]) -> None:
        place = _read_at(kind, read)
        if place is not None and (place in self._lately or len(self._lately) < MOST_PLACES):
            self._lately[place] = seen

    def _sums(self, kind: str, read: Read) -> list[int] | None:
        place = _read_at(kind, read)
        if place is None:
            return None
        if place not in self._places and len(self._places) >= MOST_PLACES:
            return None
        return self._places.setdefault(place, [0, 0])


def _read_at(kind: str, read: Read) -> _Read | None:
    frame = read.frame
    return None if frame is None else (kind, frame.file, frame.line, frame.function)


def _entry(place: _Read, sums: list[int]) -> JsonObject:
    kind, file, line, function = place
    place_of_read = {"kind": kind, "file": file, "line": line, "function": function}
    return {**place_of_read, "count": sums[0], "ns": sums[1]}

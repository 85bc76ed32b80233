"""What one agent's records come to: figures, the lines where the main thread was, events."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from whyidle.agents import wire
from whyidle.monitor import metrics as m
from whyidle.monitor.link.records import Bye, Frame, Gauges, LongGc, Look, Record, Stacks
from whyidle.monitor.metrics import Metric, Scope, metrics_of
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.rates import Rates
from whyidle.monitor.reading import FIRST, Reading
from whyidle.monitor.recording.snapshot import JobEvent
from whyidle.monitor.summary import STACKS, Line

LONG_PAUSE = "gc_pause"
# What a screen shows as "now".
WHERE_NS = 10_000_000_000
# Events are kept for ever: at first one every ten seconds, later each minute.
EVENT_NS = 10_000_000_000
LATER_EVENT_NS = 60_000_000_000
LATER = 60
LINES_KEPT = 20
# Of each of both lists; names of a common length fit in many times over.
EVENT_BYTES = 8192
LINES_SHOWN = 5
# A pause that a person would feel as a stutter of a step.
FELT_PAUSE_NS = 50_000_000
SILENT_NS = 5_000_000_000

MEASURED = tuple(x for x in metrics_of(Scope.PROCESS) if x.source == "agent")
SILENT = "the agent is silent"
NOT_READ = "the agent cannot read it"
NO_SENSE = "the agent told more than all of the time"
NOTHING_YET = "the agent has told nothing yet"

# The last record of an agent comes at any moment after the one before: over so little time a rate
# would say anything.
SHORTEST_S = 0.5
# Shares of one thread's time.
# Two clocks: a little more than all of it may come out.
MOST_RATE = 1.1
_AT_MOST_ONE = frozenset({m.PROCESS_GC_PAUSE, m.PROCESS_AGENT_CPU})

_RATES: dict[Metric, tuple[str, float]] = {
    m.PROCESS_GC_PAUSE: (wire.GC_NS, 1e-9),
    m.PROCESS_GC_COLLECTIONS: (wire.GC_COLLECTIONS, 1.0),
    m.PROCESS_AGENT_CPU: (wire.AGENT_CPU_NS, 1e-9),
}
_LEVELS: dict[Metric, str] = {
    m.PROCESS_PYTHON_THREADS: wire.PYTHON_THREADS,
    m.PROCESS_RSS_PEAK: wire.RSS_PEAK_BYTES,
}
_Place: TypeAlias = tuple[str, int, str]

# No sound agent comes near these; what a job can make us hold must be bounded.
MOST_COUNTED = 1_000_000
MOST_PLACES = 200
MOST_RECENT = 30
MOST_WAITING = 200


class Looks:
    """Where a main thread was: how often at which line of the user's, and of anybody's."""

    def __init__(self) -> None:
        self.samples = 0
        self.span_ns = 0
        self._lines: Counter[_Place] = Counter()
        self._leaves: Counter[_Place] = Counter()

    def add(self, stacks: Stacks) -> None:
        """Count one record."""
        self.samples += min(stacks.samples, MOST_COUNTED)
        self.span_ns += min(stacks.span_ns, WHERE_NS)
        for look in stacks.looks:
            count = min(look.count, MOST_COUNTED)
            if look.frames:
                _count(self._lines, look.frames[0], count)
            if look.leaf is not None:
                _count(self._leaves, look.leaf, count)

    def lines(self, most: int) -> tuple[Line, ...]:
        """Return the user's lines, most first."""
        return self._top(self._lines, most)

    def event(self, key: ProcessKey) -> JobEvent:
        """Return what is kept of it."""
        lines, leaves = (self._top(c, LINES_KEPT) for c in (self._lines, self._leaves))
        return stacks_event(key, self.samples, self.span_ns / 1e9, lines, leaves)

    def _top(self, counts: Counter[_Place], most: int) -> tuple[Line, ...]:
        # A liar may count more lines than looks.
        whole = max(1, self.samples, sum(counts.values()))
        return tuple(Line(*place, n / whole) for place, n in counts.most_common(most))


class Harvest:
    """Takes the records of one process's agent, in their order."""

    def __init__(self, key: ProcessKey) -> None:
        self.key = key
        # The last of each figure, for the screens.
        self.latest = Reading(unknown=dict.fromkeys(MEASURED, NOTHING_YET))
        self.where: tuple[Line, ...] = ()
        self.looks = 0
        self._rates = Rates()
        self._fresh = Reading()
        self._gauged: int | None = None
        # The agent's own moment of the totals that the next rates grow from.
        self._rated: float | None = None
        self._recent: deque[tuple[int, Stacks]] = deque(maxlen=MOST_RECENT)
        self._since = Looks()
        self._told, self._told_ns = 0, 0
        self._pauses: deque[tuple[int, LongGc]] = deque(maxlen=MOST_WAITING)
        self._pause_told: int | None = None

    def take(
        self, records: Iterable[Record], moment: Callable[[int], int], damaged: int = 0
    ) -> None:
        """Take in records; ``moment`` puts their time on our monotonic clock, in ns."""
        gauges: Gauges | None = None
        says_goodbye = False
        for record in records:
            match record:
                case Gauges():
                    # A rate is over the whole time since the last call.
                    gauges = record
                case Stacks():
                    self._recent.append((moment(record.t), _slim(record)))
                    self._since.add(record)
                case LongGc() if record.ns >= FELT_PAUSE_NS:
                    self._pauses.append((moment(record.t), record))
                case Bye():
                    says_goodbye = True
                case _:
                    pass
        if gauges is not None:
            self._gauge(gauges, moment(gauges.t), damaged, is_last=says_goodbye)

    def reading(self, now_ns: int) -> Reading:
        """Return the figures that came since the last call: the agent tells them each second."""
        self._look_back(now_ns)
        fresh, self._fresh = self._fresh, Reading()
        if self._gauged is None:
            self._gauged = now_ns
        if not fresh.values and not fresh.unknown and now_ns - self._gauged > SILENT_NS:
            fresh = Reading(unknown=dict.fromkeys(MEASURED, SILENT))
        if fresh.values or fresh.unknown:
            self.latest = fresh
        return fresh

    def events(self, now_ns: int, *, ending: bool = False) -> list[JobEvent]:
        """Return what is due to be kept."""
        return [*self._pause(now_ns, ending=ending), *self._stacks(now_ns, ending=ending)]

    def _gauge(self, gauges: Gauges, at_ns: int, damaged: int, *, is_last: bool) -> None:
        values, now = gauges.values, gauges.t / 1e9
        fresh = Reading()
        # The last record may be written by another thread, with its CPU time for the agent's.
        soon = is_last or (self._rated is not None and 0 <= now - self._rated < SHORTEST_S)
        self._rated = self._rated if soon else now
        for metric, (name, scale) in _RATES.items():
            total = _sane(values.get(name))
            if total is None:
                fresh.unknown[metric] = NOT_READ
                continue
            if soon:
                continue
            rate = self._rates.per_second(metric, now, total * scale)
            if rate is not None and metric in _AT_MOST_ONE and rate > MOST_RATE:
                fresh.unknown[metric] = NO_SENSE
                continue
            if rate is not None and metric in _AT_MOST_ONE:
                rate = min(1.0, rate)
            fresh.put(metric, rate, FIRST)
        for metric, name in _LEVELS.items():
            fresh.put(metric, _sane(values.get(name)), NOT_READ)
        lost = _sane(values.get(wire.LOST))
        fresh.put(m.PROCESS_AGENT_LOST, None if lost is None else lost + damaged, NOT_READ)
        self._fresh, self._gauged = fresh, at_ns

    def _look_back(self, now_ns: int) -> None:
        while self._recent and now_ns - self._recent[0][0] > WHERE_NS:
            self._recent.popleft()
        looks = Looks()
        for _, stacks in self._recent:
            looks.add(stacks)
        self.where, self.looks = looks.lines(LINES_SHOWN), looks.samples

    def _stacks(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        if not self._since.samples:
            self._told_ns = now_ns
            return []
        self._told_ns = self._told_ns or now_ns
        due = EVENT_NS if self._told < LATER else LATER_EVENT_NS
        if now_ns - self._told_ns < due and not ending:
            return []
        self._told_ns = now_ns
        looks, self._since = self._since, Looks()
        self._told += 1
        return [looks.event(self.key)]

    def _pause(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Tell the longest of some pauses: a job may have one in every step."""
        rested = self._pause_told is None or now_ns - self._pause_told >= EVENT_NS
        if not self._pauses or not (rested or ending):
            return []
        at_ns, longest = max(self._pauses, key=lambda pause: pause[1].ns)
        others = len(self._pauses) - 1
        self._pauses.clear()
        self._pause_told = now_ns
        more = f", the longest of {others + 1}" if others else ""
        text = (
            f"Python's garbage collector held up process {self.key.pid} for"
            f" {longest.ns / 1e6:.0f} ms (generation {longest.generation}){more}."
        )
        data = {
            "ns": longest.ns,
            "generation": longest.generation,
            "collected": longest.collected,
            "others": others,
        }
        return [JobEvent(LONG_PAUSE, self.key, text, at=at_ns / 1e9, data=data, is_news=False)]


def _sane(value: float | None) -> float | None:
    """Return a figure that a sound agent may have told; the store ends at 64 bits."""
    return value if value is not None and 0 <= value < 2**63 else None


def _slim(stacks: Stacks) -> Stacks:
    """Return what a screen shows of a record: the user's innermost lines."""
    looks = [Look(look.count, None, look.frames[:1]) for look in stacks.looks if look.frames]
    return Stacks(stacks.t, stacks.span_ns, stacks.samples, looks)


def _count(counts: Counter[_Place], frame: Frame, count: int) -> None:
    place = frame.file, frame.line, frame.function
    if place in counts or len(counts) < MOST_PLACES:
        counts[place] += count


def stacks_event(
    key: ProcessKey,
    samples: int,
    seconds: float | None,
    lines: Iterable[Line],
    leaves: Iterable[Line] = (),
) -> JobEvent:
    """Return the event that says where a main thread was."""
    data = {
        "samples": samples,
        "seconds": None if seconds is None else round(seconds, 3),
        "lines": _kept(lines),
        "leaves": _kept(leaves),
    }
    text = f"Where the main thread of process {key.pid} was."
    return JobEvent(STACKS, key, text, data=data, is_news=False)


def _kept(lines: Iterable[Line]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    room = EVENT_BYTES
    for told in (line.told() for line in lines):
        room -= len(json.dumps(told))
        if room < 0:
            break
        kept.append(told)
    return kept

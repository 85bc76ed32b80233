"""What holds a process up: its compilations, and long pauses of the garbage collector.

Long compilations are events of their own at first, later sums by function; a storm is one at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TypeAlias

from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.link.records import Compile, Frame, LongGc
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.recording.stats.event_limits import EVENT_NS, Due, kept
from whyidle.monitor.runs.summary import COMPILED, COMPILES

STORM = "retrace_storm"
# Longer ones a person would feel; the first of them are events of their own.
FELT_NS = 50_000_000
FIRST_SINGLY = 30
FIRST_OF_A_FUNCTION = 3
FUNCTIONS_KEPT = 10
# So often the same function from the same line is no warming up any more.
STORM_COMPILES = 10
STORM_NS = 60_000_000_000
# Reported again when it is so many times as many.
STORM_AGAIN = 10
# Of functions that are kept apart.
MOST_FUNCTIONS = 200
LONGEST_SHOWN = 80
# Nothing takes longer; sums of it stay numbers that every reader knows.
MOST_NS = 10**15

_Function: TypeAlias = tuple[str, str, str, int]
_FRAMEWORKS = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}


@dataclass
class _Sum:
    """The compilations of one function."""

    count: int = 0
    ns: int = 0
    cached: int = 0
    reason: str | None = None
    caller: Frame | None = None

    def add(self, record: Compile) -> None:
        self.count += 1
        self.ns += min(record.ns, MOST_NS)
        self.cached += record.cached
        self.reason = record.reason or self.reason
        self.caller = record.caller or self.caller

    def as_json(self) -> JsonObject:
        sums = {"count": self.count, "ns": self.ns, "cached": self.cached, "reason": self.reason}
        return {**sums, **_place(self.caller)}


@dataclass
class _Storm:
    """When a function was compiled lately, and how often in all."""

    moments: deque[int] = field(default_factory=lambda: deque(maxlen=STORM_COMPILES))
    sum: _Sum = field(default_factory=_Sum)
    report_at: int = STORM_COMPILES


class Compiles:
    """Takes the compilations of one process."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        self._due = Due()
        self._singly: dict[_Function, int] = {}
        self._ready: list[JobEvent] = []
        self._sums: dict[_Function, _Sum] = {}
        # Of functions beyond those that are kept apart.
        self._rest = _Sum()
        self._storms: dict[_Function, _Storm] = {}

    def take(self, record: Compile, at_ns: int) -> None:
        """Take in one compilation."""
        singly = self._singly.get(_named(record), 0)
        felt = record.ns >= FELT_NS and singly < FIRST_OF_A_FUNCTION
        if felt and sum(self._singly.values()) < FIRST_SINGLY:
            self._singly[_named(record)] = singly + 1
            self._ready.append(self._one(record, at_ns))
        else:
            self._sum(record).add(record)
        if not record.cached:
            self._storm(record, at_ns)

    def events(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Return what is due to be kept."""
        ready, self._ready = self._ready, []
        seconds = self._due.now(now_ns, self._sums, ending=ending)
        if seconds is not None:
            ready.append(self._all(seconds))
        return ready

    def _sum(self, record: Compile) -> _Sum:
        name = _named(record)
        if name not in self._sums and len(self._sums) >= MOST_FUNCTIONS:
            return self._rest
        return self._sums.setdefault(name, _Sum())

    def _one(self, record: Compile, at_ns: int) -> JobEvent:
        how = "took from its cache" if record.cached else "compiled"
        who = _FRAMEWORKS.get(record.framework, "its framework")
        text = (
            f"In process {self._key.pid} {who} {how} {_name(record)} in"
            f" {record.ns / 1e9:.2g} s{_from(record.caller)}{_why(record.reason)}."
        )
        data = {
            "framework": record.framework,
            "function": record.function,
            "ns": record.ns,
            "cached": record.cached,
            "reason": record.reason,
            **_place(record.caller),
        }
        return JobEvent(COMPILED, self._key, text, at=at_ns / 1e9, data=data)

    def _all(self, seconds: float) -> JobEvent:
        sums, self._sums = self._sums, {}
        rest, self._rest = self._rest, _Sum()
        most = sorted(sums.items(), key=lambda item: item[1].ns, reverse=True)
        functions = kept(
            {"framework": name[0], "function": name[1], **each.as_json()}
            for name, each in most[:FUNCTIONS_KEPT]
        )
        every = [*sums.values(), rest]
        count = sum(each.count for each in every)
        ns = sum(each.ns for each in every)
        text = f"Process {self._key.pid} compiled {count} times more, {ns / 1e9:.2g} s in all."
        data = {
            "count": count,
            "ns": ns,
            "cached": sum(each.cached for each in every),
            "seconds": round(seconds, 3),
            "functions": functions,
            "more_functions": len(sums) - len(functions),
        }
        return JobEvent(COMPILES, self._key, text, data=data, is_news=False)

    def _storm(self, record: Compile, at_ns: int) -> None:
        name = _named(record)
        storm = self._storms.get(name)
        if storm is None:
            if len(self._storms) >= MOST_FUNCTIONS and not self._forget(at_ns):
                return
            storm = self._storms.setdefault(name, _Storm())
        storm.moments.append(at_ns)
        storm.sum.add(record)
        lately = len(storm.moments) == STORM_COMPILES and at_ns - storm.moments[0] <= STORM_NS
        if storm.sum.count >= storm.report_at and lately:
            storm.report_at = STORM_AGAIN * storm.sum.count
            self._ready.append(self._storming(record, storm, at_ns))

    def _forget(self, now_ns: int) -> bool:
        """Make room: forget functions that were compiled long ago."""
        old = [n for n, storm in self._storms.items() if now_ns - storm.moments[-1] > STORM_NS]
        for name in old:
            del self._storms[name]
        return bool(old)

    def _storming(self, record: Compile, storm: _Storm, at_ns: int) -> JobEvent:
        whole = storm.sum
        text = (
            f"Process {self._key.pid} compiles {_name(record)} again and again: {whole.count}"
            f" times so far, {whole.ns / 1e9:.2g} s in all{_from(whole.caller)}"
            f"{_why(whole.reason)}."
        )
        lately = (at_ns - storm.moments[0]) / 1e9
        data = {
            "framework": record.framework,
            "function": record.function,
            **whole.as_json(),
            "lately": len(storm.moments),
            "lately_seconds": round(lately, 3),
        }
        return JobEvent(STORM, self._key, text, "medium", at=at_ns / 1e9, data=data)


def _named(record: Compile) -> _Function:
    # Many functions have no name of their own: the line tells them apart.
    caller = record.caller
    place = ("", 0) if caller is None else (caller.file, caller.line)
    return record.framework, record.function, *place


def _name(record: Compile) -> str:
    return f"'{_short(record.function)}'"


def _short(said: str) -> str:
    return said if len(said) <= LONGEST_SHOWN else f"{said[:LONGEST_SHOWN]}…"


def _from(caller: Frame | None) -> str:
    if caller is None:
        return ""
    return f", called from {_short(PurePath(caller.file).name)}:{caller.line}"


def _why(reason: str | None) -> str:
    return f" ({_short(reason.strip())})" if reason and reason.strip() else ""


def _place(frame: Frame | None) -> JsonObject:
    if frame is None:
        return {"file": None, "line": None, "in": None}
    return {"file": frame.file, "line": frame.line, "in": frame.function}


LONG_PAUSE = "gc_pause"
# A pause that a person would feel as a stutter of a step.
FELT_PAUSE_NS = 50_000_000
MOST_WAITING = 200


class Pauses:
    """Takes the long pauses of one process."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        self._waiting: deque[tuple[int, LongGc]] = deque(maxlen=MOST_WAITING)
        self._stored_ns: int | None = None

    def take(self, pause: LongGc, at_ns: int) -> None:
        """Take in one pause."""
        if pause.ns >= FELT_PAUSE_NS:
            self._waiting.append((at_ns, pause))

    def events(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Return the longest of some pauses: a job may have one in every step."""
        rested = self._stored_ns is None or now_ns - self._stored_ns >= EVENT_NS
        if not self._waiting or not (rested or ending):
            return []
        at_ns, longest = max(self._waiting, key=lambda pause: pause[1].ns)
        others = len(self._waiting) - 1
        self._waiting.clear()
        self._stored_ns = now_ns
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

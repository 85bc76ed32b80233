"""What one agent's records come to: figures, facts of its frameworks, source lines, events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from whyidle.agents import wire
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.link.records import (
    Bye,
    Compile,
    Gauges,
    LongGc,
    Reads,
    Record,
    Stacks,
    State,
    Steps,
    Turned,
)
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.recording.stats.code_lines import Readbacks, Where
from whyidle.monitor.recording.stats.event_limits import Due
from whyidle.monitor.recording.stats.figures import (
    FRAMEWORKS,
    MEASURED,
    Asked,
    Figures,
    why_no_step,
)
from whyidle.monitor.recording.stats.stalls import Compiles, Pauses
from whyidle.monitor.recording.stats.step_times import StepTimes
from whyidle.monitor.recording.stats.totals import ProcessTotals
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.summary import UNIT

FRAMEWORK = "framework"
# The kind of all events of `monitor try`; who turned a knob writes down the others.
TRY = "try"
BACK = ("off", "left")
ASKED = "asked"
# Where the memory of a process ends.
TOP = 1 << 47
# No sound probe says more, or deeper.
LONGEST_WORD = 200
LONGEST_LIST = 100
DEEPEST = 4

_WORDS = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow", "julia": "Julia"}


class Frameworks:
    """Takes the states of one process."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        # The latest facts by the name of the probe.
        self.latest: Mapping[str, Mapping[str, Any]] = {}
        self._due = Due()
        self._changed: dict[str, None] = {}
        self._reported: set[str] = set()

    def take(self, state: State) -> None:
        """Take in one state."""
        facts = plain(state.facts)
        if state.probe not in FRAMEWORKS or len(json.dumps(facts)) > wire.STATE_BYTES:
            return
        if facts != self.latest.get(state.probe):
            # A new one: the old may be on its way to a screen.
            self.latest = {**self.latest, state.probe: facts}
            self._changed[state.probe] = None

    def events(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Return what is due to be kept: facts that change all the time are stored now and then."""
        if self._due.now(now_ns, self._changed, ending=ending) is None:
            return []
        changed, self._changed = self._changed, {}
        return [self._event(probe) for probe in changed]

    def _event(self, probe: str) -> JobEvent:
        facts = self.latest[probe]
        is_first = probe not in self._reported
        self._reported.add(probe)
        text = f"Process {self._key.pid}: {said(probe, facts)}."
        data = {"probe": probe, "facts": facts}
        return JobEvent(FRAMEWORK, self._key, text, data=data, is_news=is_first)


def said(probe: str, facts: Mapping[str, Any]) -> str:
    """Return in a few words what trains here."""
    version, backend, model = (_word(facts.get(n)) for n in ("version", "backend", "model"))
    parts = [" ".join(word for word in (_WORDS.get(probe, probe), version) if word)]
    if backend:
        parts[0] += f" on {backend}"
    parameters, batch = facts.get("parameters"), facts.get("batch_size")
    if model:
        parts.append(f"model {model}")
    if type(parameters) is int:
        parts.append(f"{parameters:,} parameters")
    if type(batch) is int:
        parts.append(f"batches of {batch:,}")
    return ", ".join(parts)


def _word(fact: object) -> str | None:
    return fact if isinstance(fact, str) else None


def plain(fact: Any, deep: int = 0) -> Any:
    """Return a fact as a sound probe would send it: short, shallow, and in the store's numbers."""
    match fact:
        case str():
            return fact[:LONGEST_WORD]
        case int() | float():
            # Neither what is no number nor infinity is less.
            return fact if abs(fact) < 2**63 else None
        case list() if deep < DEEPEST:
            return [plain(each, deep + 1) for each in fact[:LONGEST_LIST]]
        case dict() if deep < DEEPEST:
            names = list(fact)[:LONGEST_LIST]
            return {name[:LONGEST_WORD]: plain(fact[name], deep + 1) for name in names}
        case _:
            return None


class TakenBack:
    """Knobs that the agent has taken back by itself: who had them turned could not say so."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        self._events: list[JobEvent] = []

    def take(self, record: Turned) -> None:
        """Take in what became of a knob."""
        why = plain(record.facts.get("why"))
        if record.state not in BACK or why == ASKED or len(self._events) >= LONGEST_LIST:
            return
        name = plain(record.name)
        data = {"knob": name, "state": "back", "why": why}
        self._events.append(JobEvent(TRY, self._key, f"{name} went back: {why}.", data=data))

    def events(self, _now_ns: int, *, ending: bool) -> list[JobEvent]:  # noqa: ARG002
        """Return those since the last call."""
        found, self._events = self._events, []
        return found


__all__ = ["MEASURED", "AgentStats"]

SILENT_NS = 5_000_000_000
SILENT = "the agent is silent"
STOPPED = "the job is stopped"
NOTHING_YET = "the agent has told nothing yet"


class AgentStats:
    """Takes the records of one process's agent, in their order."""

    def __init__(self, key: ProcessKey, counted: ProcessTotals | None = None) -> None:
        self.key = key
        # The last of each figure, for the screens.
        self.latest = Reading(unknown=dict.fromkeys(MEASURED, NOTHING_YET))
        self.where = Where(key)
        self.steps = StepTimes()
        self.frameworks = Frameworks(key)
        # Where the phase lies that the job's own code marks.
        self.phase_at: int | None = None
        # When totals were told that may be steps, and what they were, by the name of the gauge.
        self.turned: tuple[int, Mapping[str, int]] = (0, {})
        self._counted = counted or ProcessTotals()
        self._counted.begin()
        self._figures = Figures()
        self._compiles = Compiles(key)
        self._pauses = Pauses(key)
        self._readbacks = Readbacks(key)
        self._taken_back = TakenBack(key)
        self._units: list[JobEvent] = []
        self._fresh = Reading()
        self._gauged: int | None = None

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
                    self._counted.take_gauges(record)
                case Bye():
                    says_goodbye = True
                case _:
                    self._take(record, moment(record.t))
        if gauges is not None:
            self._gauge(gauges, moment(gauges.t), damaged, is_last=says_goodbye)

    def reading(self, now_ns: int, *, stopped: bool = False) -> Reading:
        """Return the figures that came since the last call: there are some each second.

        Of a process that is stopped only what came before is to be kept, and nothing holds now.
        """
        self.where.look_back(now_ns)
        fresh, self._fresh = self._fresh, Reading()
        if self._gauged is None:
            self._gauged = now_ns
        is_none = not fresh.values and not fresh.unknown
        if stopped:
            self.latest = Reading(unknown=dict.fromkeys(MEASURED, STOPPED))
            return self.latest if is_none else fresh
        if is_none and now_ns - self._gauged > SILENT_NS:
            fresh = Reading(unknown=dict.fromkeys(MEASURED, SILENT))
        if fresh.values or fresh.unknown:
            self.latest = fresh
        return fresh

    def read_line(self, now_ns: int) -> ReadBack | None:
        """Return the line that waits longest for values from the device."""
        return self._readbacks.top(now_ns)

    def events(self, now_ns: int, *, ending: bool = False) -> list[JobEvent]:
        """Return what is due to be kept."""
        others, self._units = self._units, []
        return others + [
            event
            for what in (
                self.frameworks, self._compiles, self._pauses, self._readbacks, self.where,
                self._taken_back,
            )
            for event in what.events(now_ns, ending=ending)
        ]  # fmt: skip

    def _take(self, record: Record, at_ns: int) -> None:
        match record:
            case Stacks():
                self.where.take(record, at_ns)
            case Steps():
                self._take_steps(record, at_ns)
            case LongGc():
                self._pauses.take(record, at_ns)
            case Compile():
                self._compiles.take(record, at_ns)
            case Reads():
                self._readbacks.take(record, at_ns)
            case State():
                self.frameworks.take(record)
            case Turned():
                self._taken_back.take(record)
            case _:
                pass

    def _take_steps(self, record: Steps, at_ns: int) -> None:
        before = self.steps.source, self.steps.unit
        if not self.steps.take(record, at_ns):
            return
        self._counted.take_steps(record)
        is_other = before[0] is not None and before != (record.source, record.unit)
        if is_other and len(self._units) < LONGEST_LIST:
            text = f"Steps of process {self.key.pid} are of another kind from now on."
            data = {"source": record.source}
            self._units.append(JobEvent(UNIT, self.key, text, data=data, is_news=False))

    def _gauge(self, gauges: Gauges, at_ns: int, damaged: int, *, is_last: bool) -> None:
        at = gauges.values.get(wire.PHASE_AT)
        self.phase_at = int(at) if at is not None and 0 < at < TOP else None
        known = frozenset(self.frameworks.latest)
        window = self.steps.window_ns / 1e9
        asked = Asked(gauges, known, window, damaged, is_last)
        totals = {name: asked.value(name) for name in (wire.MOST_BATCHES, wire.CALLBACKS)}
        self.turned = at_ns, {name: int(n) for name, n in totals.items() if n is not None}
        fresh = self._figures.read(asked)
        self.steps.put(fresh, at_ns, why_no_step(asked))
        self._fresh, self._gauged = fresh, at_ns

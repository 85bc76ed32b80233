"""What one agent's records come to: figures, the lines where the main thread was, events."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
)
from whyidle.monitor.processes.events import JobEvent
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.compiles import Compiles
from whyidle.monitor.recording.figures import MEASURED, Asked, Figures, why_no_step
from whyidle.monitor.recording.frameworks import Frameworks
from whyidle.monitor.recording.pauses import Pauses
from whyidle.monitor.recording.readbacks import Readbacks
from whyidle.monitor.recording.stack_samples import Where
from whyidle.monitor.recording.step_times import StepTimes
from whyidle.monitor.recording.totals import ProcessTotals
from whyidle.monitor.runs.aggregates import ReadBack

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
        self._counted = counted or ProcessTotals()
        self._counted.begin()
        self._figures = Figures()
        self._compiles = Compiles(key)
        self._pauses = Pauses(key)
        self._readbacks = Readbacks(key)
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
        """Return the figures that came since the last call: the agent tells them each second.

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
        return [
            event
            for what in (
                self.frameworks, self._compiles, self._pauses, self._readbacks, self.where
            )
            for event in what.events(now_ns, ending=ending)
        ]  # fmt: skip

    def _take(self, record: Record, at_ns: int) -> None:
        match record:
            case Stacks():
                self.where.take(record, at_ns)
            case Steps() if self.steps.take(record, at_ns):
                self._counted.take_steps(record)
            case LongGc():
                self._pauses.take(record, at_ns)
            case Compile():
                self._compiles.take(record, at_ns)
            case Reads():
                self._readbacks.take(record, at_ns)
            case State():
                self.frameworks.take(record)
            case _:
                pass

    def _gauge(self, gauges: Gauges, at_ns: int, damaged: int, *, is_last: bool) -> None:
        known = frozenset(self.frameworks.latest)
        window = self.steps.window_ns / 1e9
        asked = Asked(gauges, known, window, damaged, is_last)
        fresh = self._figures.read(asked)
        self.steps.put(fresh, at_ns, why_no_step(asked))
        self._fresh, self._gauged = fresh, at_ns

"""The stages of a tick, each behind a guard: a defect costs its own part, never the tick."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from whyidle.monitor.core.defects import Defects
from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.core.reading import FAILED, Reading
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.processes.procfs import Stat
from whyidle.monitor.recording.clock import Sampler
from whyidle.monitor.recording.snapshot import Member
from whyidle.monitor.sources.gpu import GpuReading
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.sources.ownership import Owned

# What cannot be stored must not fill our memory.
MOST_WAITING = 1000
Key = TypeVar("Key")
Value = TypeVar("Value")


def _failed(scope: Scope) -> Reading:
    return Reading(unknown=dict.fromkeys(metrics_of(scope), FAILED))


@dataclass(slots=True)
class Moment:
    """What a tick has found so far, and where a stage failed, that it did."""

    at: float
    ts_ms: int
    sampler: Sampler
    # As at the tick before, until they are read again.
    stats: Mapping[ProcessKey, Stat]
    owned: Owned
    gpus: dict[str, GpuReading]
    became_another: bool = False
    processes: dict[ProcessKey, Reading] = field(default_factory=dict)
    job: Reading = field(default_factory=lambda: _failed(Scope.JOB))
    host: Reading = field(default_factory=lambda: _failed(Scope.HOST))
    own: Reading = field(default_factory=lambda: _failed(Scope.MONITOR))
    members: tuple[Member, ...] = ()
    events: tuple[GpuEvent, ...] = ()
    happened: tuple[JobEvent, ...] = ()
    notes: tuple[str, ...] = ()
    # Whether the processes were read at this tick.
    is_fresh: bool = False

    @property
    def pids(self) -> frozenset[int]:
        """The pids of the job."""
        return frozenset(key.pid for key in self.stats)


Stage = tuple[str, Callable[[Moment], None]]


class Guard:
    """Catches our own defects, each for itself, and has them counted and reported."""

    def __init__(self, defects: Defects, report: Callable[[str, Exception], None]) -> None:
        self._defects = defects
        # Called for the first defect of a place in a while.
        self._report = report

    def caught(self, where: str, error: Exception) -> None:
        """Count a defect, and report it unless that was done lately."""
        if self._defects.caught(where, error):
            with contextlib.suppress(Exception):
                self._report(where, error)

    def attempt(self, where: str, step: Callable[[], object]) -> bool:
        """Take a step; return whether it came to its end."""
        try:
            step()
        except Exception as error:  # noqa: BLE001  one odd line of /proc must cost no more
            self.caught(where, error)
            return False
        return True

    def run(self, stages: Sequence[Stage], moment: Moment) -> list[str]:
        """Run the stages and return which failed; what those find is missing in the tick."""
        return [name for name, run in stages if not self.attempt(name, partial(run, moment))]

    def store(self, waiting: list[Value], put: Callable[[Value], object]) -> tuple[Value, ...]:
        """Store what waits and return it; what cannot be stored waits on."""
        done = self.each("an event", range(len(waiting)), lambda n: put(waiting[n]))
        stored = tuple(waiting[n] for n in done)
        waiting[:] = [each for n, each in enumerate(waiting) if n not in done][-MOST_WAITING:]
        return stored

    def each(
        self, where: str, keys: Iterable[Key], read: Callable[[Key], Value]
    ) -> dict[Key, Value]:
        """Read one after the other; those that cannot be read are left out."""
        found: dict[Key, Value] = {}
        for key in keys:
            try:
                found[key] = read(key)
            except Exception as error:  # noqa: BLE001  the others can still be read
                self.caught(where, error)
        return found

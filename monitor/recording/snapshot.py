"""What one tick showed, for the screens; and what a whole recording came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.core.contracts.diagnosis import FindingJson, VerdictJson
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.process import Identity, JobEvent, ProcessKey
from whyidle.monitor.processes.roles import Role
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.estimate import BACKENDS, Device, Running, running
from whyidle.monitor.runs.training import LOOP
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.sources.ownership import Owned
from whyidle.monitor.tracing.trace_summary import TraceSummary

# More stops than these are not listed one by one.
FEW_STOPS = 3
# Below this one digit would say that there was none.
TINY_MS = 0.1


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the job that has a framework loaded, and whether the agent is in it."""

    key: ProcessKey
    # As torchrun, SLURM or Open MPI number it, or its framework.
    rank: int | None
    # A name of the ladder's methods; ``None`` while it is being tried.
    method: str | None
    refusal: Refusal | None = None
    stops_ms: tuple[float, ...] = ()
    # What the agent measures of this process (Scope.PROCESS).
    reading: Reading = field(default_factory=Reading)
    # The user's own lines of the last seconds, most first; and how many looks they stand for.
    where: tuple[SourceLine, ...] = ()
    looks: int = 0
    # The line that waited longest for values from the device, of the last seconds.
    read_line: ReadBack | None = None
    # It has lived long enough to be kept.
    settled: bool = True
    # The latest facts of each framework, by the name of its probe.
    framework: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # What marks the end of a step; ``None``: nothing does yet.
    steps_source: str | None = None
    # Of its environment, what may cost time; ``None``: not readable.
    settings: Mapping[str, str] | None = None
    # Its part in a job of several; and its own title, where it has one.
    role: Role | None = None
    title: str | None = None

    @property
    def trains(self) -> bool:
        """Whether something in it marks its steps: turns of a loop may be of anything."""
        return self.steps_source not in {None, LOOP}


def stood_still(stops_ms: tuple[float, ...]) -> str:
    """Return how long a process stood still: each time where they are few, else the longest."""
    if len(stops_ms) <= FEW_STOPS:
        return f"{' + '.join(_ms(ms) for ms in stops_ms)} ms"
    return f"at most {_ms(max(stops_ms))} ms, {len(stops_ms)} times"


def _ms(ms: float) -> str:
    # A stop that took nothing was none.
    return "<0.01" if ms < 0.01 else f"{ms:.{1 if ms >= TINY_MS else 2}f}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the job."""

    run: int
    ts_ms: int
    elapsed: float
    ticks: int
    identity: Identity | None
    facts: tuple[GpuFacts, ...]
    gpus: dict[str, GpuReading]
    owned: Owned
    gpu_problem: str | None
    job_pids: frozenset[int]
    job: Reading
    host: Reading
    monitor: Reading
    period: float
    stopped: bool = False
    # The process that was named, whatever the others do.
    main_stopped: bool = False
    # Why that process has no agent and will get none as it is now.
    not_entered: Refusal | None = None
    events: tuple[GpuEvent, ...] = ()
    trouble: str | None = None
    notes: tuple[str, ...] = field(default=())
    members: tuple[Member, ...] = ()
    happened: tuple[JobEvent, ...] = ()
    # The last trace that was taken of the job, and whether it came with this tick.
    traces: TraceSummary | None = None
    has_new_trace: bool = False
    # What is certainly wrong with it, as `diagnose --json` has it, the most important first.
    findings: tuple[FindingJson, ...] = ()
    verdict: VerdictJson | None = None
    # Whether what is counted as its steps are answers to requests.
    serves: bool = False

    def shown(self, *, everything: bool) -> list[GpuFacts]:
        """Return the GPUs to show: the job's own, or all."""
        return [f for f in self.facts if everything or f.index in self.owned.indices]

    def estimate(self) -> Running:
        """Return where the job's time goes at this moment."""
        gpus = [self.gpus[i].reading for i in sorted(self.owned.indices & self.gpus.keys())]
        trace = self.traces
        age = None if trace is None else max(0.0, (self.ts_ms - trace.ts_ms) / 1000)
        return running(self.job, gpus, self._device(), trace, age)

    def _device(self) -> Device | None:
        """Return what the job computes on, as its frameworks or the driver say."""
        backends = [facts.get("backend") for x in self.members for facts in x.framework.values()]
        kinds = {BACKENDS.get(name) for name in backends if isinstance(name, str)}
        if "gpu" in kinds or self.owned.sure:
            return "gpu"
        return "cpu" if kinds == {"cpu"} else None

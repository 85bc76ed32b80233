"""What a recording knows of a job over a window of time: plain values, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whyidle.monitor.core.finding import Evidence, SourceLine
from whyidle.monitor.core.measure import SAMPLES, Measure
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.processes.process import JULIA
from whyidle.monitor.runs.aggregates import Compiled, ReadBack
from whyidle.monitor.runs.stacks import StackSamples
from whyidle.monitor.signals.drift import Drift
from whyidle.monitor.signals.standstill import Standstill, Stopped

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trend:
    """How a level went over the window, without its first part."""

    first: float
    last: float
    per_s: float
    # The growth of the second half over that of the first: near 1 it does not level out.
    holding: float


@dataclass(frozen=True, slots=True)
class GpuUser:
    """A process that was seen on a GPU."""

    pid: int
    name: str | None
    is_ours: bool
    # Means over the window; a process that rests has no share for the moment.
    memory: float | None = None
    sm_share: float | None = None


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU over the window."""

    index: str
    name: str | None
    owned: bool
    means: Mapping[Metric, float]
    info: Facts = field(default_factory=dict)
    # The newest, of what is asked for as it stands at the end.
    lasts: Mapping[Metric, float] = field(default_factory=dict)
    # The highest, of a link that rests when nobody uses it.
    highest: Mapping[Metric, float] = field(default_factory=dict)
    # Who was seen on it, as far as the driver says.
    users: tuple[GpuUser, ...] = ()
    # The mean of the second half over that of the first, of what is asked for so.
    rises: Mapping[Metric, float] = field(default_factory=dict)

    def last(self, metric: Metric) -> float | None:
        """Return the newest value, or the mean where that was not kept."""
        return self.lasts.get(metric, self.means.get(metric))

    @property
    def is_held(self) -> bool:
        """Whether a process of the job was seen on it; also where the driver names nobody."""
        return self.owned and (not self.users or any(user.is_ours for user in self.users))

    @property
    def others(self) -> tuple[GpuUser, ...]:
        """Processes of somebody else."""
        return tuple(user for user in self.users if not user.is_ours)

    @property
    def taken_by_others(self) -> float | None:
        """The share of its time that they take; ``None``: they are there, and nothing says it."""
        shares = [user.sm_share for user in self.others]
        known = [share for share in shares if share is not None]
        return min(1.0, sum(known)) if len(known) == len(shares) else None


@dataclass(frozen=True, slots=True)
class Helper:
    """A process that the job started and that makes no steps of its own."""

    # CPU time a second.
    cores: float
    # Where its main thread was: whole chains; and its other threads, while that one waited.
    stacks: StackSamples = field(default_factory=StackSamples)
    threads: StackSamples = field(default_factory=StackSamples)

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        """The user's lines at which it ran, with their shares of that."""
        return self.stacks.running()


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One rank of a job, as a recording saw it."""

    rank: int
    pid: int
    # Where its main thread was, of the same seconds for all ranks.
    stacks: StackSamples = field(default_factory=StackSamples)
    means: Mapping[Metric, float] = field(default_factory=dict)
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Serving:
    """A main thread that waits for others to give it work, which is left out of the samples."""

    # What it waits for mostly, in words.
    waits: str
    # The part of the time in which nobody has anything to do; ``None``: not known.
    idle: float | None
    # Whether the samples are of other threads: of those that work.
    by_threads: bool
    # Whether these train: then their steps are steps.
    trains: bool = False


@dataclass(frozen=True)
class Recorded:
    """The signals of a recording. What is not in a mapping was not measured."""

    seconds: float = 0.0
    # Since its end; ``None``: tests do not say.
    age_s: float | None = None
    # Steady time only: warming up is left out where that is known.
    warm_s: float = 0.0
    # Of the job, the host, and the process that stands for the job.
    means: Mapping[Metric, float] = field(default_factory=dict)
    trends: Mapping[Metric, Trend] = field(default_factory=dict)
    # The newest, of what is asked for as it stands at the end.
    lasts: Mapping[Metric, float] = field(default_factory=dict)
    # The lowest and the highest, of what the framework's allocator says.
    ranges: Mapping[Metric, tuple[float, float]] = field(default_factory=dict)
    # How the time of a step went.
    drift: Drift | None = None
    # All of its main threads at one line at the end; ``None``: it moves, or nobody looked.
    standstill: Standstill | None = None
    # Processes of it that something has stopped; ``None``: nothing has.
    stopped: Stopped | None = None
    unknown: Mapping[Metric, str] = field(default_factory=dict)
    gpus: tuple[SeenGpu, ...] = ()
    # The last that each framework said, by the name of the probe ("jax", "torch").
    facts: Mapping[str, Facts] = field(default_factory=dict)
    steps: int | None = None
    # What counts them; ``None``: nothing does, or a recording of before does not say.
    steps_by: str | None = None
    compiled: tuple[Compiled, ...] = ()
    reads: tuple[ReadBack, ...] = ()
    # Where the main thread was: whole chains; the user's innermost lines; anybody's.
    stacks: StackSamples = field(default_factory=StackSamples)
    # Whose they are instead, and what of them is left out.
    serving: Serving | None = None
    lines: tuple[SourceLine, ...] = ()
    leaves: tuple[SourceLine, ...] = ()
    # Where other threads were that had Python's lock while the main thread wanted it.
    holders: StackSamples = field(default_factory=StackSamples)
    # How often it was looked at; ``None``: recordings of before do not say.
    looks: int | None = None
    helpers: tuple[Helper, ...] = ()
    # Cores of the processes that train beside it.
    peers: float = 0.0
    # And of the other parts of a job of several: its front, its engine. What spins does not work.
    parts: float = 0.0
    # Where the other threads of the same process were that run Python.
    threads: StackSamples = field(default_factory=StackSamples)
    # And processes that it starts and that hardly live.
    short_lived: StackSamples = field(default_factory=StackSamples)
    # What threads that waited read from, in words, and in how many samples.
    read_from: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[str, tuple[Facts, ...]] = field(default_factory=dict)
    # Whether an agent was inside, as far as the recording says.
    inside: bool = False
    # How long the job stood still for that; ``None``: not known.
    stopped_s: float | None = None
    command: str | None = None
    # Variables of its environment that may cost time; ``None``: not readable, or not kept.
    settings: Mapping[str, str] | None = None
    # Of the process that stands for the job.
    pid: int | None = None
    # Its title and its part in a job of several; and whether it is the one that was named.
    title: str | None = None
    role: str | None = None
    is_named: bool = True
    # All of its ranks that were seen, where there are several.
    ranks_seen: tuple[RankSeen, ...] = ()

    def mean(self, metric: Metric) -> Measure | None:
        """Return the mean of a metric over the window."""
        value = self.means.get(metric)
        if value is None:
            return None
        return self.measure(value, metric.unit, None if metric.source == "agent" else metric.source)

    def last(self, metric: Metric) -> float | None:
        """Return the newest value, or the mean where that was not kept."""
        return self.lasts.get(metric, self.means.get(metric))

    def measure(self, value: float, unit: str, source: str | None = None) -> Measure:
        """Return a number of this recording; ``source``: none where an agent would say it."""
        return Measure(value, unit, source or self._as_agent, self.age_s, self.seconds)

    @property
    def _as_agent(self) -> str:
        """Who says what an agent would: where none is inside, whoever reads it from outside."""
        if self.inside or self.facts.keys() - {JULIA}:
            return "agent"
        # The turns of a loop are read with its stack.
        return "procfs" if self.facts else SAMPLES

    def said(self, name: str, words: str, source: str = "agent") -> Evidence:
        """Return what somebody says in words, as evidence."""
        return Evidence(name, words, "", source, self.age_s, self.seconds)

    def sampled(self, share: float) -> Measure:
        """Return a share of the samples of stacks."""
        return self.measure(share, "ratio", SAMPLES)

    @property
    def computes_at_once(self) -> bool:
        """Whether each operation has ended when its call returns: PyTorch's on a CPU."""
        backends = {name: facts.get("backend") for name, facts in self.facts.items()}
        return backends.pop("torch", None) == "cpu" and not any(backends.values())

    def fact(self, name: str) -> Any:
        """Return a fact from the first framework that knows it; ``None``: none does."""
        found = (facts[name] for facts in self.facts.values() if facts.get(name) is not None)
        return next(found, None)

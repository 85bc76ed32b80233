"""The traces of a recording: whose turn it is, what the GPUs say to it, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.recording.pipeline import Guard
from whyidle.monitor.recording.snapshot import Member
from whyidle.monitor.recording.stats.agent_stats import STOPPED
from whyidle.monitor.recording.tracked_process import TrackedProcess, order_of
from whyidle.monitor.sources.gpu import GpuReading
from whyidle.monitor.sources.ownership import Owned
from whyidle.monitor.tracing.by_agent import ByAgent
from whyidle.monitor.tracing.policy import (
    LOW_SM_ACTIVITY,
    LOW_UTILISATION,
    SELDOM_SECONDS,
    SETTLED_SECONDS,
    STARVED_SECONDS,
    Policy,
    Sign,
)
from whyidle.monitor.tracing.scheduler import FAILED, Candidate, TraceScheduler
from whyidle.monitor.tracing.space import of_run
from whyidle.monitor.tracing.trace_request import TraceRequest
from whyidle.monitor.tracing.trace_summary import TraceSummary

# Two of the longest pauses between traces: an older one says nothing of now.
FRESH_SECONDS = 2 * SELDOM_SECONDS
# So often in a row nothing was compiled: one long compilation is reported only when it ends.
CALM_TICKS = 2
# Fewer steps have no median worth the name.
LEAST_STEPS = 3
# What repeats sooner may be an operator, or a loop over letters: of public programs 0.65 ms and
# 2.6 ms were steps, and 0.05 ms was none.
LEAST_REPEATS_NS = 300_000
# Of the job's time: what a person asks for is given all of it.
ALL = 1.0
JOB_ENDED = "the job ended first"
# Of a step's time: who says so, where nobody counts steps.
SOURCE = "trace"


class Traces:
    """The traces of one recording."""

    def __init__(  # noqa: PLR0913  whose, where to, and when
        self,
        target: ProcessKey,
        store: Path,
        run: int,
        *,
        share: float,
        named_ms: Callable[[float], int],
        settled: float = SETTLED_SECONDS,
        guard: Guard,
    ) -> None:
        self._guard = guard
        self._scheduler = TraceScheduler(store, run, Policy(share), named_ms)
        self._named_ms = named_ms
        self._target = target
        self._is_off = False
        self._owner = of_run(run)
        self._share = share
        self._settled = settled
        # Of each process: the share of its time that went into compiling, and how often it fell.
        self._compiling: dict[ProcessKey, tuple[float, int]] = {}
        self._sign = Sign(min(STARVED_SECONDS, settled))
        self._news: list[JobEvent] = []

    @property
    def last(self) -> TraceSummary | None:
        """The last trace that was understood."""
        return self._scheduler.last

    @property
    def is_new(self) -> bool:
        """Tell whether it came with this tick."""
        return self._scheduler.is_new

    @property
    def request(self) -> TraceRequest:
        """What a person asked for last."""
        return self._scheduler.request

    def ask(self, now: float, seconds: float | None) -> None:
        """Take a trace at the next tick that can; where one is asked for already, a ``Problem``."""
        progress = self.request.progress
        if not progress.is_over:
            raise Problem(f"A trace is under way already. {progress.what}", "Wait for that one.")
        if self._is_off:
            step = f"Take one by hand: monitor trace {self._target.pid}"
            raise Problem("No trace: traces are off after a failure.", step)
        self.request.ask(self._named_ms(now), seconds)

    def tick(
        self,
        now: float,
        processes: Sequence[TrackedProcess],
        gpus: Mapping[str, GpuReading],
        owned: Owned,
    ) -> None:
        """Go on with a trace, or begin one whose time has come."""
        if self._is_off:
            return
        starved = self._sign.look(now, low=_low(gpus, owned))
        calm = [tracked for tracked in processes if self._is_calm(tracked, now)]
        settled = in_order(calm, now, self._settled)
        candidates = [self._candidate(tracked, self._share) for tracked in settled]
        at_once = self._at_once(processes, now)
        try:
            self._news += self._scheduler.tick(now, candidates, starved=starved, at_once=at_once)
        except Exception as error:  # noqa: BLE001  counters come also without traces
            self._is_off = True
            self._guard.caught("traces", error)
            self._scheduler.close("traces are off after a failure")
            text = f"Traces are off from now on ({type(error).__name__}: {error})."
            self._news.append(JobEvent(FAILED, self._target, text, "medium"))

    def _is_young(self, tracked: TrackedProcess, now: float) -> bool:
        """Tell whether a trace of it is an early one, as was asked for."""
        return self._settled < SETTLED_SECONDS and now - tracked.entered < SETTLED_SECONDS

    def _is_calm(self, tracked: TrackedProcess, now: float) -> bool:
        """Tell whether a job that is to be traced early has ceased to compile.

        Its share of the last seconds falls from tick to tick as soon as nothing is compiled.
        """
        if not self._is_young(tracked, now):
            return True
        share = tracked.agent_stats.latest.get(m.PROCESS_COMPILE) or 0.0
        before, falls = self._compiling.get(tracked.key, (0.0, 0))
        falls = falls + 1 if share < before or not share else 0
        self._compiling[tracked.key] = share, falls
        return falls >= CALM_TICKS

    def take_events(self) -> list[JobEvent]:
        """Return what happened since the last call."""
        news, self._news = self._news, []
        return news

    def put_steps(self, now: float, job: Reading, processes: Mapping[ProcessKey, Reading]) -> None:
        """Put how long a step takes, where only a trace knows."""
        last, seconds = self.last, self._step_seconds(now)
        if last is None or seconds is None:
            return
        _put(job, m.JOB_STEP_P50, m.JOB_STEPS, seconds)
        if last.key in processes:
            _put(processes[last.key], m.PROCESS_STEP_P50, m.PROCESS_STEPS, seconds)

    def sourced(self, now: float, members: Iterable[Member]) -> tuple[Member, ...]:
        """Return the members; the one whose steps only a trace knows has them from there."""
        return tuple(self._sourced(now, member) for member in members)

    def _sourced(self, now: float, member: Member) -> Member:
        seconds = self._step_seconds(now)
        if self.last is None or self.last.key != member.key or seconds is None:
            return member
        # The agent may have sent nothing since the last tick.
        is_put = _put(member.reading, m.PROCESS_STEP_P50, m.PROCESS_STEPS, seconds)
        return replace(member, steps_source=SOURCE) if is_put else member

    def step_seconds(self, now: float) -> dict[ProcessKey, float]:
        """Return how long a step takes, or what repeats, of the process last traced."""
        last, seconds = self.last, self._step_seconds(now)
        if last is None:
            return {}
        repeats = last.steps.get("repeats_ns") or 0
        if seconds is None and repeats >= LEAST_REPEATS_NS and last.age(now) <= FRESH_SECONDS:
            # Turns of a loop may have been taken for steps that are none.
            seconds = repeats / 1e9
        return {} if seconds is None else {last.key: seconds}

    def _step_seconds(self, now: float) -> float | None:
        """Return what the last trace says of a step, where it still may be so."""
        last = self.last
        if last is None or last.age(now) > FRESH_SECONDS or last.steps["count"] < LEAST_STEPS:
            return None
        median: int | None = last.steps["median_ns"]
        return None if median is None else median / 1e9

    def close(self, *, job_ended: bool) -> None:
        """End what is under way; the run says why a trace that was asked for is missing."""
        try:
            self._news += self._scheduler.finish()
        finally:
            is_lost = not self.request.progress.is_over
            self._scheduler.close(JOB_ENDED if job_ended else "the recording ended first")
        if is_lost:
            self._news.append(JobEvent(FAILED, self._target, self.request.progress.what))

    def _at_once(self, processes: Sequence[TrackedProcess], now: float) -> list[Candidate]:
        """Return who may be asked for a trace that a person waits for."""
        if not self.request.is_waiting:
            return []
        return [self._candidate(tracked, ALL) for tracked in in_order(processes, now, 0.0)]

    def _candidate(self, tracked: TrackedProcess, share: float) -> Candidate:
        latest = tracked.agent_stats.latest
        return Candidate(
            tracked.key,
            tracked.rank,
            latest.get(m.PROCESS_STEP_P50),
            partial(self._way, tracked, share),
            # Where only a trace knows how long they take, nobody counts any.
            is_counted=latest.get(m.PROCESS_STEPS) is not None,
        )

    def _way(self, tracked: TrackedProcess, share: float) -> ByAgent:
        assert tracked.link is not None  # noqa: S101  it stands in the order
        ended = JOB_ENDED if tracked.key == self._target else "it ended first"
        return ByAgent(tracked.link, self._scheduler.space, self._owner, share, ended)


def _put(reading: Reading, metric: Metric, counted: Metric, seconds: float) -> bool:
    """Put the time of a step where nobody counts steps; returns whether."""
    if reading.get(counted) is not None or reading.unknown.get(counted) == STOPPED:
        # Of a job that stopped stepping, or is stopped, an old trace says nothing.
        return False
    reading.unknown.pop(metric, None)
    reading.values[metric] = seconds
    return True


def in_order(
    processes: Sequence[TrackedProcess], now: float, settled_s: float = SETTLED_SECONDS
) -> list[TrackedProcess]:
    """Return the processes that have been entered for a while, those that stand for all first."""
    order = order_of(processes)

    def place(tracked: TrackedProcess) -> tuple[int, float, bool, int, int]:
        rank = float("inf") if tracked.rank is None else tracked.rank
        # A launcher makes no steps.
        silent = tracked.agent_stats.latest.get(m.PROCESS_STEPS) is None
        part = order.place(tracked.role, trains=tracked.trains)
        return part, rank, silent, tracked.key.start_ticks, tracked.key.pid

    settled = (
        tracked
        for tracked in processes
        if tracked.link is not None
        and tracked.has_framework
        and not tracked.is_young
        and not tracked.is_stopped
        and now - tracked.entered >= settled_s
    )
    return sorted(settled, key=place)


def _low(gpus: Mapping[str, GpuReading], owned: Owned) -> bool | None:
    """Tell whether a GPU of the job does little; ``None`` where that is not measured."""
    looks = []
    for index in owned.indices & gpus.keys() if owned.sure else ():
        reading = gpus[index].reading
        activity, use = reading.get(m.GPU_SM_ACTIVITY), reading.get(m.GPU_UTILISATION)
        if activity is not None:
            looks.append(activity < LOW_SM_ACTIVITY)
        elif use is not None:
            looks.append(use < LOW_UTILISATION)
    return any(looks) if looks else None

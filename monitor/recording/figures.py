"""What one agent measures, from its gauges: totals become rates and shares, the rest is as told.

The totals of the frameworks grow in leaps: one wait may take seconds, and is told at its end. Their
rates are over the last ten seconds, or over a few steps where these are longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from whyidle.agents import wire
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.core.rates import Rates
from whyidle.monitor.core.reading import FIRST, NO_JAX, NO_TORCH, Reading
from whyidle.monitor.link.records import Gauges
from whyidle.monitor.recording import step_times

# Of one total; an agent tells each second.
MOST_KEPT = 150


class Growth:
    """The last values of each total."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def note(self, name: str, now: float, total: float) -> None:
        """Take in a total. One that has shrunk counts from the start."""
        seen = self._seen.setdefault(name, deque(maxlen=MOST_KEPT))
        if seen and (total < seen[-1][1] or now <= seen[-1][0]):
            seen.clear()
        seen.append((now, total))

    def over(self, name: str, seconds: float) -> tuple[float, float] | None:
        """Return what it grew by and in how many seconds: these, or as far back as is known."""
        seen = self._seen.get(name)
        if seen is None or len(seen) < 2:
            return None
        now, total = seen[-1]
        begin = seen[0]
        for moment in reversed(seen):
            begin = moment
            if now - moment[0] >= seconds:
                break
        return total - begin[1], now - begin[0]


MEASURED = tuple(x for x in metrics_of(Scope.PROCESS) if x.source == "agent")
NOT_READ = "the agent cannot read it"
NO_SENSE = "the agent told more than all of the time"
NO_FRAMEWORK = "the agent knows of no framework in use here"
NO_LOADER = "no batch of a PyTorch data loader was seen yet"
NO_OPTIMIZER = "no step of a PyTorch optimizer was seen yet"
NO_SAMPLES = "no batch whose size is known was seen yet"
NO_POOL = "no device memory of the framework's is known"

# The last record of an agent comes at any moment after the one before: over so little time a rate
# would say anything.
SHORTEST_S = 0.5
# Two clocks: a little more than all of it may come out.
MOST_RATE = 1.1
# No wait that ends has lasted longer, in all threads together: who says so makes no sense.
LONGEST_WAIT_S = 1e6

# Shares of one thread's time.
_AT_MOST_ONE = frozenset({m.PROCESS_GC_PAUSE, m.PROCESS_AGENT_CPU})
_RATES: dict[Metric, tuple[str, float]] = {
    m.PROCESS_GC_PAUSE: (wire.GC_NS, 1e-9),
    m.PROCESS_GC_COLLECTIONS: (wire.GC_COLLECTIONS, 1.0),
    m.PROCESS_AGENT_CPU: (wire.AGENT_CPU_NS, 1e-9),
}
_LEVELS: dict[Metric, str] = {
    m.PROCESS_PYTHON_THREADS: wire.PYTHON_THREADS,
    m.PROCESS_RSS_PEAK: wire.RSS_PEAK_BYTES,
    m.PROCESS_EXECUTABLES: wire.EXECUTABLES,
    m.PROCESS_LIVE_ARRAYS: wire.LIVE_ARRAYS,
    m.PROCESS_LIVE_BYTES: wire.LIVE_BYTES,
    m.PROCESS_POOL_USED: wire.POOL_USED_BYTES,
    m.PROCESS_POOL_PEAK: wire.POOL_PEAK_BYTES,
    m.PROCESS_POOL_RESERVED: wire.POOL_RESERVED_BYTES,
    m.PROCESS_POOL_LIMIT: wire.POOL_LIMIT_BYTES,
    m.PROCESS_POOL_SPLIT: wire.POOL_SPLIT_BYTES,
    m.PROCESS_ALLOC_OOMS: wire.ALLOC_OOMS,
}
# What grows in leaps, and what is not there as long as nothing was counted under a name.
_NUMBERS: dict[Metric, str] = {
    m.PROCESS_SAMPLES: wire.SAMPLES,
    m.PROCESS_LOADER_BATCHES: wire.LOADER_BATCHES,
    m.PROCESS_SYNCS: wire.SYNCS,
    m.PROCESS_READBACK: wire.READ_BYTES,
    m.PROCESS_DEVICE_PUTS: wire.DEVICE_PUTS,
    m.PROCESS_COMPILES: wire.COMPILES,
    m.PROCESS_COMPILE_HITS: wire.COMPILE_HITS,
    m.PROCESS_AUTOCASTS: wire.AUTOCASTS,
    m.PROCESS_ALLOC_RETRIES: wire.ALLOC_RETRIES,
}
_SHARES: dict[Metric, str] = {
    m.PROCESS_OPTIMIZER_TIME: wire.OPTIMIZER_NS,
    m.PROCESS_LOADER_WAIT: wire.LOADER_WAIT_NS,
    m.PROCESS_SYNC_WAIT: wire.SYNC_NS,
    m.PROCESS_COMPILE: wire.COMPILE_NS,
}
_NEEDS: dict[Metric, tuple[str, str]] = {
    m.PROCESS_SAMPLES: (wire.SAMPLES, NO_SAMPLES),
    m.PROCESS_LOADER_BATCHES: (wire.LOADER_BATCHES, NO_LOADER),
    m.PROCESS_LOADER_WAIT: (wire.LOADER_BATCHES, NO_LOADER),
    m.PROCESS_OPTIMIZER_TIME: (wire.OPTIMIZER_STEPS, NO_OPTIMIZER),
}
# Who tells of what: as long as it has said nothing, that is the reason.
_TORCH, _JAX = "torch", "jax"
FRAMEWORKS = frozenset({_TORCH, _JAX})
_OF_TORCH = {
    m.PROCESS_SAMPLES: NO_SAMPLES,
    m.PROCESS_OPTIMIZER_TIME: NO_OPTIMIZER,
    m.PROCESS_LOADER_BATCHES: NO_LOADER,
    m.PROCESS_LOADER_WAIT: NO_LOADER,
    m.PROCESS_AUTOCASTS: NOT_READ,
}
_OF_JAX = {
    m.PROCESS_DEVICE_PUTS: NOT_READ,
    m.PROCESS_COMPILE_HITS: NOT_READ,
    m.PROCESS_EXECUTABLES: NOT_READ,
    m.PROCESS_LIVE_ARRAYS: NOT_READ,
    m.PROCESS_LIVE_BYTES: NOT_READ,
}
_OF_BOTH = {
    m.PROCESS_COMPILES: NOT_READ,
    m.PROCESS_COMPILE: NOT_READ,
    m.PROCESS_SYNCS: NOT_READ,
    m.PROCESS_SYNC_WAIT: NOT_READ,
    m.PROCESS_READBACK: NOT_READ,
    m.PROCESS_POOL_USED: NO_POOL,
    m.PROCESS_POOL_PEAK: NO_POOL,
    m.PROCESS_POOL_RESERVED: NO_POOL,
    m.PROCESS_POOL_LIMIT: NO_POOL,
    m.PROCESS_POOL_SPLIT: NO_POOL,
    m.PROCESS_ALLOC_RETRIES: NO_POOL,
    m.PROCESS_ALLOC_OOMS: NO_POOL,
}


@dataclass(frozen=True)
class Asked:
    """The gauges of one moment, and what is needed to understand them."""

    gauges: Gauges
    # The probes that have found their framework.
    known: frozenset[str] = frozenset()
    # How far back "now" reaches.
    window_s: float = 10.0
    # Lines of the spool that were no records.
    damaged: int = 0
    # The last record may be written by another thread, with its CPU time for the agent's.
    is_last: bool = False

    def value(self, name: str) -> float | None:
        """Return a figure that a sound agent may have told; the store ends at 64 bits."""
        value = self.gauges.values.get(name)
        return value if value is not None and 0 <= value < 2**63 else None


class Figures:
    """Makes readings of the gauges of one agent."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._growth = Growth()
        # The agent's own moment of the totals that the next rates grow from.
        self._rated: float | None = None

    def read(self, asked: Asked) -> Reading:
        """Return what is known."""
        now, fresh = asked.gauges.t / 1e9, Reading()
        for metric, name in _LEVELS.items():
            fresh.put(metric, asked.value(name), why_not(metric, asked.known))
        lost = asked.value(wire.LOST)
        fresh.put(m.PROCESS_AGENT_LOST, None if lost is None else lost + asked.damaged, NOT_READ)
        soon = self._rated is not None and 0 <= now - self._rated < SHORTEST_S
        soon = soon or asked.is_last
        self._rated = self._rated if soon else now
        self._put_rates(fresh, asked, now, soon=soon)
        if not soon:
            for metric, name in (*_NUMBERS.items(), *_SHARES.items()):
                self._put_growth(fresh, metric, name, asked)
        return fresh

    def _put_rates(self, fresh: Reading, asked: Asked, now: float, *, soon: bool) -> None:
        for metric, (name, scale) in _RATES.items():
            total = asked.value(name)
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

    def _put_growth(self, fresh: Reading, metric: Metric, name: str, asked: Asked) -> None:
        total = asked.value(name)
        if total is None:
            fresh.unknown[metric] = why_not(metric, asked.known)
            return
        needed, reason = _NEEDS.get(metric, (None, ""))
        if needed != name or total:
            # What counts itself was not counted before the first.
            self._growth.note(name, asked.gauges.t / 1e9, total)
        grown = self._growth.over(name, asked.window_s)
        if needed is not None and not asked.value(needed):
            fresh.unknown[metric] = reason
        elif grown is None:
            fresh.unknown[metric] = FIRST
        elif metric not in _SHARES:
            fresh.values[metric] = grown[0] / grown[1]
        elif grown[0] > LONGEST_WAIT_S * 1e9:
            fresh.unknown[metric] = NO_SENSE
        else:
            # A wait that was longer than the window ended in it.
            fresh.values[metric] = min(1.0, grown[0] * 1e-9 / grown[1])


def why_no_step(asked: Asked) -> str:
    """Return why nobody has told of a step yet."""
    why = why_not(m.PROCESS_STEPS, asked.known)
    is_fed = why == step_times.NO_STEP and asked.value(wire.LOADER_BATCHES)
    return step_times.NO_OPTIMIZER if is_fed and not asked.value(wire.OPTIMIZER_STEPS) else why


def why_not(metric: Metric, known: frozenset[str]) -> str:
    """Return why an agent that tells nothing of a metric does not."""
    if metric in _OF_TORCH:
        return _OF_TORCH[metric] if _TORCH in known else NO_TORCH
    if metric in _OF_JAX:
        return _OF_JAX[metric] if _JAX in known else NO_JAX
    if metric in step_times.MEASURED:
        if not known:
            return NO_FRAMEWORK
        return step_times.NO_MARK if known == {_JAX} else step_times.NO_STEP
    if metric in _OF_BOTH:
        return _OF_BOTH[metric] if known else NO_FRAMEWORK
    return NOT_READ


NONE_INSIDE = "no agent in the job"
SOME_SILENT = "not every process that trains tells its batch size"

_TOGETHER: tuple[tuple[Metric, Metric, Callable[[Iterable[float]], float]], ...] = (
    (m.JOB_GC_PAUSE, m.PROCESS_GC_PAUSE, max),
    (m.JOB_AGENT_CPU, m.PROCESS_AGENT_CPU, sum),
    (m.JOB_STEPS, m.PROCESS_STEPS, min),
    (m.JOB_SAMPLES, m.PROCESS_SAMPLES, sum),
    (m.JOB_LOADER_WAIT, m.PROCESS_LOADER_WAIT, max),
    (m.JOB_SYNC_WAIT, m.PROCESS_SYNC_WAIT, max),
    (m.JOB_COMPILE, m.PROCESS_COMPILE, max),
    (m.JOB_COMPILES, m.PROCESS_COMPILES, sum),
)
_OF_THE_SLOWEST = ((m.JOB_STEP_P50, m.PROCESS_STEP_P50), (m.JOB_STEP_P95, m.PROCESS_STEP_P95))


def put_job(job: Reading, inside: Sequence[Reading]) -> None:
    """Put what is true of the whole job; those that stand for it first."""
    job.values[m.JOB_AGENTS] = len(inside)
    for of_job, of_process, together in _TOGETHER:
        values = [v for r in inside if (v := r.get(of_process)) is not None]
        job.put(of_job, together(values) if values else None, _why(inside, of_process))
    # Who takes part in a step and does not count its samples would be missing from the sum.
    some_silent = any(r.get(m.PROCESS_STEPS) and m.PROCESS_SAMPLES not in r.values for r in inside)
    if some_silent and job.values.pop(m.JOB_SAMPLES, None) is not None:
        job.unknown[m.JOB_SAMPLES] = SOME_SILENT
    paced = [r for r in inside if m.PROCESS_STEP_P50 in r.values]
    slowest = max(paced, key=lambda r: r.values[m.PROCESS_STEP_P50], default=None)
    for of_job, of_process in _OF_THE_SLOWEST:
        found = None if slowest is None else slowest.get(of_process)
        job.put(of_job, found, _why(inside, of_process))


def _why(inside: Sequence[Reading], metric: Metric) -> str:
    if not inside:
        return NONE_INSIDE
    return next((r.unknown[metric] for r in inside if metric in r.unknown), FIRST)

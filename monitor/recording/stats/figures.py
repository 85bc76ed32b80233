"""What the agents measure: of one process from its gauges, and of the whole job.

How a metric comes from a gauge stands in ``core/metrics.py``. Totals of the frameworks grow in
leaps: a wait may take seconds, and is reported at its end. From one record to the next its rate
would jump between nothing and more than everything, so it is taken over the last ten seconds, or
over a few steps where these are longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from whyidle.agents import wire
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import (
    NOT_READ,
    Becomes,
    Gauge,
    Metric,
    Scope,
    metrics_of,
    processes_of,
)
from whyidle.monitor.core.rates import Rates
from whyidle.monitor.core.reading import FIRST, NO_JAX, NO_JULIA, NO_TORCH, Reading
from whyidle.monitor.link.records import Gauges
from whyidle.monitor.processes.process import JULIA
from whyidle.monitor.recording.stats import step_times

# Of one total; there is a record each second.
MOST_KEPT = 150


class Growth:
    """The last values of each total: how much it grew over some seconds."""

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
# Each metric of the job that is made of one of its processes.
TOGETHER = tuple((x, processes_of(x)) for x in metrics_of(Scope.JOB) if x.together)
NO_SENSE = "the agent told more than all of the time"
NO_FRAMEWORK = "the agent knows of no framework in use here"

# The last record of an agent comes at any moment after the one before: over so little time a rate
# would say anything.
SHORTEST_S = 0.5
# Two clocks: a little more than all of it may come out.
MOST_RATE = 1.1
# No wait that ends has lasted longer, in all threads together: who says so makes no sense.
LONGEST_WAIT_S = 1e6

# Who says so: the probes of the frameworks, by their names.
_TORCH, _JAX, _TENSORFLOW = "torch", "jax", "tensorflow"
FRAMEWORKS = frozenset({_TORCH, _JAX, _TENSORFLOW, JULIA})
_NO_FRAMEWORK_OF = {_TORCH: NO_TORCH, _JAX: NO_JAX, JULIA: NO_JULIA}
NOT_FROM_OUTSIDE = "not seen from outside a Julia process"


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
        """Return a figure if a sound agent may have sent it; the store ends at 64 bits."""
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
        for metric, gauge in _made_of("level"):
            fresh.put(metric, asked.value(gauge.key), why_not(metric, asked.known))
        if m.PROCESS_AGENT_LOST in fresh.values:
            fresh.values[m.PROCESS_AGENT_LOST] += asked.damaged
        soon = self._rated is not None and 0 <= now - self._rated < SHORTEST_S
        soon = soon or asked.is_last
        self._rated = self._rated if soon else now
        for metric, gauge in _made_of("rate", "share"):
            self._put_rate(fresh, metric, gauge, asked, soon=soon)
        if not soon:
            for metric, gauge in _made_of("recent rate", "recent share"):
                self._put_growth(fresh, metric, gauge, asked)
        return fresh

    def _put_rate(
        self, fresh: Reading, metric: Metric, gauge: Gauge, asked: Asked, *, soon: bool
    ) -> None:
        total = asked.value(gauge.key)
        if total is None:
            fresh.unknown[metric] = why_not(metric, asked.known)
            return
        if soon:
            return
        is_share = gauge.becomes == "share"
        rate = self._rates.per_second(
            metric, asked.gauges.t / 1e9, total * 1e-9 if is_share else total
        )
        if rate is not None and is_share and rate > MOST_RATE:
            fresh.unknown[metric] = NO_SENSE
            return
        fresh.put(metric, min(1.0, rate) if rate is not None and is_share else rate, FIRST)

    def _put_growth(self, fresh: Reading, metric: Metric, gauge: Gauge, asked: Asked) -> None:
        total = asked.value(gauge.key)
        if total is None:
            fresh.unknown[metric] = why_not(metric, asked.known)
            return
        if gauge.needs != gauge.key or total:
            # What counts itself was not counted before the first.
            self._growth.note(gauge.key, asked.gauges.t / 1e9, total)
        grown = self._growth.over(gauge.key, asked.window_s)
        if gauge.needs is not None and not asked.value(gauge.needs):
            fresh.unknown[metric] = gauge.missing
        elif grown is None:
            fresh.unknown[metric] = FIRST
        elif gauge.becomes == "recent rate":
            fresh.values[metric] = grown[0] / grown[1]
        elif grown[0] > LONGEST_WAIT_S * 1e9:
            fresh.unknown[metric] = NO_SENSE
        else:
            # A wait that was longer than the window ended in it.
            fresh.values[metric] = min(1.0, grown[0] * 1e-9 / grown[1])


def _made_of(*how: Becomes) -> Iterator[tuple[Metric, Gauge]]:
    return ((x, x.gauge) for x in MEASURED if x.gauge is not None and x.gauge.becomes in how)


def why_no_step(asked: Asked) -> str:
    """Return why no step is known yet."""
    why = why_not(m.PROCESS_STEPS, asked.known)
    is_fed = why == step_times.NO_STEP and asked.value(wire.LOADER_BATCHES)
    return step_times.NO_OPTIMIZER if is_fed and not asked.value(wire.OPTIMIZER_STEPS) else why


def why_not(metric: Metric, known: frozenset[str]) -> str:
    """Return why an agent sends nothing of a metric."""
    if known == {JULIA} and (metric.gauge is None or metric.gauge.framework != JULIA):
        return NOT_FROM_OUTSIDE
    if metric in step_times.MEASURED:
        if not known:
            return NO_FRAMEWORK
        return step_times.NO_MARK if known == {_JAX} else step_times.NO_STEP
    gauge = metric.gauge
    if gauge is None or gauge.framework is None:
        return NOT_READ
    if gauge.framework == "any":
        return gauge.missing if known else NO_FRAMEWORK
    return gauge.missing if gauge.framework in known else _NO_FRAMEWORK_OF[gauge.framework]


NONE_INSIDE = "no agent in the job"
SOME_SILENT = "not every process that trains tells its batch size"

_ADD: dict[str, Callable[[Iterable[float]], float]] = {"max": max, "min": min, "sum": sum}


def put_job(job: Reading, inside: Sequence[Reading], agents: int) -> None:
    """Put what is true of the whole job; those that stand for it first."""
    job.values[m.JOB_AGENTS] = agents
    for metric, of_process in TOGETHER:
        if (add := _ADD.get(str(metric.together))) is not None:
            values = [v for r in inside if (v := r.get(of_process)) is not None]
            job.put(metric, add(values) if values else None, _why(inside, of_process))
    # Who takes part in a step and does not count its samples would be missing from the sum.
    some_silent = any(r.get(m.PROCESS_STEPS) and m.PROCESS_SAMPLES not in r.values for r in inside)
    if some_silent and job.values.pop(m.JOB_SAMPLES, None) is not None:
        job.unknown[m.JOB_SAMPLES] = SOME_SILENT
    paced = [r for r in inside if m.PROCESS_STEP_P50 in r.values]
    slowest = max(paced, key=lambda r: r.values[m.PROCESS_STEP_P50], default=None)
    for metric, of_process in TOGETHER:
        if metric.together == "slowest":
            found = None if slowest is None else slowest.get(of_process)
            job.put(metric, found, _why(inside, of_process))


def _why(inside: Sequence[Reading], metric: Metric) -> str:
    if not inside:
        return NONE_INSIDE
    return next((r.unknown[metric] for r in inside if metric in r.unknown), FIRST)

"""What is asked of a fleet: each query once, for the terminal, the page and Grafana.

They ask for sums and for the worst few, so that an answer is as small for a thousand hosts as for
ten. The time that is asked about stands in them as Grafana spells it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from whyidle.monitor.core.contracts.fleet import Dimension
from whyidle.monitor.export import families as f
from whyidle.monitor.export.fleet_files import ALERTS, RECORDED
from whyidle.monitor.export.lost_time import (
    GPU_COST,
    GPU_IDLE,
    GPU_JOULES,
    GPU_TIME,
    JOB,
    JOB_IDLE,
    JOB_TIME,
    OWNER,
    Sum,
    owners,
)

RANGE, STEP, RATE = "$__range", "$__interval", "$__rate_interval"
# The worst of each kind; who has more reads no further.
MOST: Final = 20
MOST_ALERTS: Final = 50
HOUR, KWH = 3600, 3_600_000
Source = Literal["rules", "counters"]

LABELS: Final[Mapping[Dimension, tuple[str, ...]]] = {
    "job": (*JOB, *OWNER), "cause": ("cause",), "user": ("user",), "team": ("team",),
    "namespace": ("namespace",), "host": ("instance",),
}  # fmt: skip
DIMENSIONS: Final = tuple(LABELS)
# Of these there are few enough to ask for the time of all.
_FEW: Final[tuple[Dimension, ...]] = ("user", "team", "namespace")
_HELD_IDLE: Final = next(x.expr for x in ALERTS if x.name == "WhyidleGpuHeldAndIdle")
_RULES: Final = {rule.name: rule.expr for rule in RECORDED}


@dataclass(frozen=True, slots=True)
class Query:
    """One question, and the part of the answer that it fills."""

    part: str
    text: str
    # Whether it is asked for many moments.
    is_trend: bool = False


# Whether the rules have run lately; and what time it is there.
RULES_RUN: Final = Query("rules", f"count(last_over_time({GPU_TIME.record}[15m]))")
CLOCK: Final = Query("clock", "time()")


def main(dimensions: Sequence[Dimension], source: Source) -> tuple[Query, ...]:
    """Return what is asked at first."""
    return (*_now(), *_totals(source), *_lost(dimensions, source), *trends(source))


def _now() -> tuple[Query, ...]:
    seen = f"max by (instance) (last_over_time({f.BUILD.name}[{RANGE}]))"
    answering = f"max by (instance) ({f.BUILD.name})"
    who = owners(f.JOB_INFO.name)
    held = f"({f.JOB_GPU.name} and on (instance, gpu, UUID) ({_HELD_IDLE}))"
    held = f"{held} * on ({', '.join(JOB)}) group_left ({', '.join(OWNER)}) {who}"
    firing = 'ALERTS{alertstate="firing", alertname=~"Whyidle.+"}'
    return (
        Query("hosts", f"count({answering})"),
        Query("gone", f"topk({MOST_ALERTS}, {seen} unless on (instance) {answering})"),
        Query("gpus", f"count({f.GPU_ANSWERS.name})"),
        Query("gpus_held_idle", f"count({_HELD_IDLE}) or vector(0)"),
        Query("held_idle", f"topk({MOST}, count by ({', '.join((*JOB, *OWNER))}) ({held}))"),
        Query("alerts", f"topk({MOST_ALERTS}, {firing})"),
    )


def _totals(source: Source) -> tuple[Query, ...]:
    return (
        Query("job_gpu_hours", f"sum({_sum(JOB_TIME, source)}) / {HOUR}"),
        Query("held.time", f"sum by (held) ({_sum(GPU_TIME, source)}) / {HOUR}"),
        Query("held.idle", f"sum by (held) ({_sum(GPU_IDLE, source)}) / {HOUR}"),
        Query("held.energy", f"sum by (held) ({_sum(GPU_JOULES, source)}) / {KWH}"),
        Query("held.money", f"sum by (held, currency) ({_sum(GPU_COST, source)})"),
    )


def _lost(dimensions: Sequence[Dimension], source: Source) -> list[Query]:
    idle, time = _sum(JOB_IDLE, source), _sum(JOB_TIME, source)
    found = []
    # The causes are few, and their sum is the whole.
    for dimension in dict.fromkeys(("cause", *dimensions)):
        by = ", ".join(LABELS[dimension])
        worst = f"topk({MOST}, sum by ({by}) ({idle}) > 0) / {HOUR}"
        found.append(Query(f"lost.{dimension}", worst))
        if dimension in _FEW:
            found.append(Query(f"time.{dimension}", f"sum by ({by}) ({time}) / {HOUR}"))
    return found


def trends(source: Source) -> tuple[Query, ...]:
    """Return what is asked for many moments."""
    return (
        Query("trend.hosts", f"count(max by (instance) ({f.BUILD.name}))", True),
        Query("trend.idle_share", _trend("whyidle_gpu_idle:ratio_rate5m", source), True),
        Query("trend.lost_gpus", _trend("cause:whyidle_job_idle:rate5m", source), True),
    )


def of_jobs(chosen: str, source: Source) -> tuple[Query, ...]:
    """Return what is asked of the jobs that a selector chooses."""
    idle, time = (_sum(x, source, chosen) for x in (JOB_IDLE, JOB_TIME))
    by = ", ".join(JOB)
    return (
        Query("job.causes", f"sum by ({by}, cause) ({idle}) / {HOUR} > 0"),
        Query("job.time", f"sum by ({by}) ({time}) / {HOUR}"),
        Query("job.info", f"last_over_time({f.JOB_INFO.name}{chosen}[{RANGE}])"),
    )


def of_hosts(chosen: str, source: Source) -> tuple[Query, ...]:
    """Return what is asked of the hosts that a selector chooses."""
    held = f'{chosen[:-1]}, held="true"}}'
    time, joules, cost = (
        _sum(x, source, s) for x, s in ((JOB_TIME, chosen), (GPU_JOULES, held), (GPU_COST, held))
    )
    return (
        Query("host.time", f"sum by (instance) ({time}) / {HOUR}"),
        Query("host.energy", f"sum by (instance) ({joules}) / {KWH}"),
        Query("host.money", f"sum by (instance, currency) ({cost})"),
    )


def of_gone(chosen: str) -> tuple[Query, ...]:
    """Return what is asked of the hosts that no longer answer: when they still did."""
    seen = f"max by (instance) (last_over_time({f.BUILD.name}{chosen}[{STEP}]))"
    return (Query("gone.seen", seen, True),)


def _sum(what: Sum, source: Source, chosen: str = "") -> str:
    add = what.kept if source == "rules" else what.counted
    return add(RANGE, chosen)


def _trend(rule: str, source: Source) -> str:
    if source == "rules":
        return f"avg_over_time({rule}[{STEP}])"
    return _RULES[rule].replace("[5m]", f"[{RATE}]")


def filled(text: str, seconds: float, step: float) -> str:
    """Return a query for a time and a step of these lengths."""
    # A rate needs two scrapes, and a lost one may be between them.
    rate = max(step, 120)
    for name, value in ((RANGE, seconds), (STEP, step), (RATE, rate)):
        text = text.replace(name, f"{value:.0f}s")
    return text

"""Records of an agent, made by hand."""

from __future__ import annotations

from whyidle.monitor.link.records import (
    Compile,
    Frame,
    Gauges,
    Record,
    StackCount,
    Stacks,
    State,
    Steps,
)
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.stats.agent_stats import AgentStats

SECOND = 1_000_000_000
MS = 1_000_000
MOST = 2**63 - 1
KEY = ProcessKey(7, 1)
LEAF = Frame("/site-packages/torch/nn.py", 5, "forward")
LOAD, STEP = Frame("/job/train.py", 8, "load"), Frame("/job/train.py", 20, "step")


def gauges(second: float, **values: float | None) -> Gauges:
    return Gauges(int(second * SECOND), dict(values))


def stacks(second: float, *samples: StackCount) -> Stacks:
    return Stacks(
        int(second * SECOND), SECOND, sum(sample.count for sample in samples), list(samples)
    )


def steps(second: float, *ms: float, source: str = "optimizer", count: int | None = None) -> Steps:
    durations = sorted(int(each * MS) for each in ms)
    number = len(ms) if count is None else count
    return Steps(int(second * SECOND), source, SECOND, number, durations)


def compiled(
    second: float,
    function: str = "step",
    ms: float = 100,
    reason: str | None = None,
    caller: Frame | None = STEP,
    *,
    cached: bool = False,
) -> Compile:
    t, ns = int(second * SECOND), int(ms * MS)
    return Compile(t, "jax", function, ns, reason, caller, cached)


def state(second: float, probe: str = "torch", **facts: object) -> State:
    return State(int(second * SECOND), probe, facts)


def take(agent_stats: AgentStats, *records: Record) -> None:
    agent_stats.take(records, lambda t: t)

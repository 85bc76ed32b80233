"""What shows in a trace alone: how many operations a step has, in a trace that the agent took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.agents.torch.inside import Watched, training
from tests.agents.torch.programs import program
from whyidle.monitor.traces import kineto
from whyidle.monitor.traces.model import Flags, Trace
from whyidle.monitor.traces.opening import identify

SECONDS = 0.5
# PyTorch puts them into every trace: the programs begin and end each of their steps with these.
BEGIN, END = "Optimizer.zero_grad#", "Optimizer.step#"


def operations(name: str, *, bad: bool, folder: Path) -> float:
    """Return the operations of a step."""
    place = folder / str(bad)
    place.mkdir()
    with training(program(name, bad=bad), place) as job:
        job.gauges(2)
        return operations_of_a_step(traced(job))


def traced(job: Watched) -> Trace:
    answer = job.client.ask("trace", seconds=SECONDS)
    assert answer["ok"], answer
    record = job.until("trace", lambda r: r[2] == answer["id"] and r[3] != "begun")
    assert record[3] == "done", record
    facts = record[4]
    trace = kineto.read(identify(job.client.home / facts["file"]))
    assert not trace.warnings
    return trace


def operations_of_a_step(trace: Trace) -> float:
    """Return how many operations begin within a whole step; how long they take does not matter."""
    first = int(trace.host.start[named(trace, BEGIN)].min())
    ends = trace.host.end[named(trace, END)]
    steps = int((ends > first).sum())
    assert steps
    begun = trace.host.start[named(trace, "aten::")]
    return float(((begun >= first) & (begun < ends.max())).sum()) / steps


def named(trace: Trace, beginning: str) -> Flags:
    wanted = np.array([name.startswith(beginning) for name in trace.names])
    found: Flags = wanted[trace.host.name]
    return found


@pytest.mark.parametrize(("name", "least"), [("unbatched", 20.0)])
def test_a_step_has_more_operations_than_it_should(name: str, least: float, tmp_path: Path) -> None:
    before = operations(name, bad=True, folder=tmp_path)
    after = operations(name, bad=False, folder=tmp_path)
    assert after >= 20
    assert before > least * after, (before, after)

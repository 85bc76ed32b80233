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

# A busy machine may take longer for a step: then another trace, which is longer.
SECONDS = (0.5, 1.0, 2.0, 4.0)
# PyTorch puts these into every trace: the programs begin and end each of their steps with them.
BEGIN, END = "Optimizer.zero_grad#", "Optimizer.step#"


def operations(name: str, *, bad: bool, folder: Path) -> float:
    """Return the operations of a step."""
    place = folder / str(bad)
    place.mkdir()
    with training(program(name, bad=bad), place) as job:
        job.gauges(2)
        found = (operations_of_a_step(traced(job, seconds)) for seconds in SECONDS)
        number = next((each for each in found if each is not None), None)
        assert number is not None, f"no whole step in {SECONDS[-1]} s"
        return number


def traced(job: Watched, seconds: float) -> Trace:
    answer = job.client.ask("trace", seconds=seconds)
    assert answer["ok"], answer
    record = job.until("trace", lambda r: r[2] == answer["id"] and r[3] != "begun")
    assert record[3] == "done", record
    facts = record[4]
    trace = kineto.read(identify(job.client.home / facts["file"]))
    assert not trace.warnings
    return trace


def operations_of_a_step(trace: Trace) -> float | None:
    """Return how many operations begin within a whole step, however long they take.

    None where no whole step is in the trace.
    """
    begins, ends = (named(trace, each) for each in (BEGIN, END))
    if not begins.any():
        return None
    first = int(trace.host.start[begins].min())
    after = trace.host.end[ends]
    steps = int((after > first).sum())
    if not steps:
        return None
    begun = trace.host.start[named(trace, "aten::")]
    return float(((begun >= first) & (begun < after.max())).sum()) / steps


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

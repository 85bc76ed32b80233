"""What shows in a trace alone: how many operations a step has, in a trace that the agent took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.agents.torch.inside import Watched, training
from tests.agents.torch.programs import program
from whyidle.agents import wire
from whyidle.monitor.traces import kineto
from whyidle.monitor.traces.opening import identify

SECONDS = 0.5


def operations(name: str, *, bad: bool, folder: Path) -> float:
    """Return the operations of a step."""
    place = folder / str(bad)
    place.mkdir()
    with training(program(name, bad=bad), place) as job:
        # A window ends with a step, and the steps are long: they count as they are in time.
        *_, last = job.gauges(4)
        first = job.of("gauges")[1]
        steps = last[wire.STEPS] - first[2][wire.STEPS]
        a_step = (job.of("gauges")[-1][1] - first[1]) / max(steps, 1)
        return a_step * operations_a_nanosecond(job)


def operations_a_nanosecond(job: Watched) -> float:
    answer = job.client.ask("trace", seconds=SECONDS)
    assert answer["ok"], answer
    record = job.until("trace", lambda r: r[2] == answer["id"] and r[3] != "begun")
    assert record[3] == "done", record
    facts = record[4]
    trace = kineto.read(identify(job.client.home / facts["file"]))
    assert not trace.warnings
    wanted = np.array([name.startswith("aten::") for name in trace.names])
    found = int(wanted[trace.host.name].sum())
    return found / float(facts["ended_ns"] - facts["began_ns"])


@pytest.mark.parametrize(("name", "least"), [("unbatched", 5.0)])
def test_a_step_has_more_operations_than_it_should(name: str, least: float, tmp_path: Path) -> None:
    before = operations(name, bad=True, folder=tmp_path)
    after = operations(name, bad=False, folder=tmp_path)
    assert after >= 20
    assert before > least * after, (before, after)

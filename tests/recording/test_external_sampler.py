"""What is seen from outside until an agent is in."""

from __future__ import annotations

import pytest

from tests.link.conftest import FS, Puppet
from tests.recording.seated import BUSY, Job, Samples, goes_in, is_inside, stays_out, trainer
from whyidle.monitor.attach.answers import Outcome, Refusal
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording import external_sampler
from whyidle.monitor.recording.tracked_process import TrackedProcess

pytestmark = pytest.mark.usefixtures("samples")


def test_the_main_thread_is_sampled_from_outside_until_the_agent_is_in(
    puppet: Puppet, samples: type[Samples]
) -> None:
    ways = [stays_out, goes_in]

    def way(target: Target) -> Outcome:
        return ways.pop(0)(target)

    job = Job(puppet, way)
    member = job.until(lambda found: found and found.where)
    assert member is not None
    assert (member.where[0].line, member.where[0].share, member.looks) == (8, 0.75, 4)
    assert job.kinds() == ["agent_refused", "stacks"]
    assert samples.open == 1
    job.until(is_inside, step=1.0)
    assert samples.open == 0
    job.inside.leave(1.0)


def test_without_py_spy_it_is_said_once(puppet: Puppet, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Refusal("py-spy is not installed.", "pip install py-spy")
    monkeypatch.setattr(Samples, "refused", missing)
    job = Job(puppet, goes_in, observe=True)
    for _ in range(3):
        job.tick(1.0)
    said = [event.text for event in job.events if event.kind == "outside_refused"]
    assert said == ["py-spy is not installed. pip install py-spy"]


def test_reasons_of_many_processes_are_shown_a_few_times(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = external_sampler.ExternalSampler(FS)
    events = []
    for pid in range(20):
        monkeypatch.setattr(Samples, "refused", Refusal(f"py-spy cannot look into {pid}."))
        tracked = TrackedProcess(
            ProcessKey(pid, 1), trainer(puppet), 0.0, barred=BUSY, is_young=False
        )
        events += sampler.tick([tracked])
    assert len(events) == external_sampler.MOST_REPORTED
    sampler.close()

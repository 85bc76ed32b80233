"""Workers come and go: only those that stay are reported."""

from __future__ import annotations

import pytest

from tests.link.conftest import FS, Puppet
from tests.recording.seated import Caught, Job, Way, goes_in, is_inside
from whyidle.agents import wire
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording import agent_manager as module
from whyidle.monitor.recording.agent_manager import AgentManager

pytestmark = pytest.mark.usefixtures("samples")


class Worker:
    """The puppet's process as a worker of another one, as old as wanted."""

    def __init__(self, puppet: Puppet, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
        self.age = 2.0
        monkeypatch.setattr(module, "lived", lambda _: self.age)
        self.job = Job(puppet, way)
        self.job.inside = AgentManager(
            Target(ProcessKey(1, 0), FS), enter=way, any_user=True, guard=Caught(strict=True)
        )

    def end(self) -> None:
        self.job.puppet.process.kill()
        self.job.puppet.process.wait()
        self.job.until(lambda found: found is None)


def test_of_workers_that_hardly_live_only_the_number_is_kept(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(puppet, goes_in, monkeypatch)
    worker.job.until(is_inside)
    puppet.write("gauges", {wire.PYTHON_THREADS: 4})
    worker.job.until(lambda _: puppet.key in worker.job.inside.readings())
    assert not worker.job.inside.has_settled(puppet.key)
    assert not worker.job.inside.members()[0].settled
    worker.end()
    worker.job.inside.leave(0.1)
    worker.job.events += worker.job.inside.take_events()
    assert worker.job.kinds() == ["short_lived"]
    assert worker.job.events[0].data == {"count": 1}


def test_what_happened_to_a_worker_is_shown_when_it_has_stayed(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(puppet, goes_in, monkeypatch)
    worker.job.until(is_inside)
    assert worker.job.kinds() == []
    worker.age = 6.0
    worker.job.tick()
    assert worker.job.kinds() == ["agent_entered"]
    puppet.write("gauges", {wire.PYTHON_THREADS: 4})
    worker.job.until(lambda _: worker.job.inside.has_settled(puppet.key))
    worker.job.inside.leave(1.0)

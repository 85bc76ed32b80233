"""Workers come and go: only those that stay are reported."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from tests.link.conftest import FS, Puppet
from tests.recording.seated import Caught, Job, Way, goes_in, is_inside, stays_out, trainer
from whyidle.agents import wire
from whyidle.monitor.processes.process import Identity, ProcessKey, describe
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording import agent_manager as module
from whyidle.monitor.recording.agent_manager import AgentManager
from whyidle.monitor.recording.tracked_process import TrackedProcess

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


@pytest.fixture
def forked(puppet: Puppet) -> Iterator[list[Identity]]:
    """Five processes that go on where the puppet was."""
    first = trainer(puppet)
    with ExitStack() as all_of_them:
        found = []
        for _ in range(5):
            one = all_of_them.enter_context(subprocess.Popen(["/bin/sleep", "60"]))
            all_of_them.callback(one.kill)
            who = describe(one.pid, FS)
            assert who is not None
            found.append(replace(first, key=who.key, parent=puppet.pid))
        yield found


def tick_all(job: Job, forked: list[Identity]) -> None:
    known = {job.puppet.key: job.who, **{who.key: who for who in forked}}
    stats = {key: FS.stat(key.pid) for key in known}
    job.inside.tick(job.now, stats, known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("alike", "entered"),
    [
        pytest.param({}, 2, id="a loader's workers"),
        pytest.param({"arguments": ("spawn_main",)}, 5, id="started anew: ranks, or actors"),
    ],
)
def test_two_of_many_forked_workers_stand_for_all(
    puppet: Puppet,
    forked: list[Identity],
    alike: dict[str, Any],
    entered: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "lived", lambda _: 10.0)
    job = Job(puppet, stays_out)
    workers = [replace(who, **alike) for who in forked]
    for _ in range(20):
        tick_all(job, workers)
        time.sleep(0.01)
    tried = [each for each in job.inside.processes() if each.tries and each.key != puppet.key]
    assert len(tried) == entered
    shut = [each.refusal for each in job.inside.processes() if each.refusal == module.STOOD_FOR]
    assert len(shut) == 5 - entered


def test_each_forked_process_that_trains_is_entered(
    puppet: Puppet, forked: list[Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "lived", lambda _: 10.0)
    monkeypatch.setattr(TrackedProcess, "trains", property(lambda _: True))
    job = Job(puppet, stays_out)
    tick_all(job, forked)
    assert all(each.tries for each in job.inside.processes() if each.key != puppet.key)


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

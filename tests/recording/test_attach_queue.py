"""Which processes are entered, when, and what a refusal says."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

import pytest

from tests.link.conftest import FS, Puppet, key_of
from tests.recording.seated import BUSY, Caught, Job, goes_in, is_inside, stays_out, trainer
from whyidle.monitor.attach.answers import OUTSIDE, Outcome, Refusal
from whyidle.monitor.core import metrics as m
from whyidle.monitor.link.channel import Address
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording import agent_events, agent_manager, attach_queue
from whyidle.monitor.recording.agent_manager import AgentManager
from whyidle.monitor.recording.tracked_process import MOST_TRIES, NO_AGENT, TrackedProcess

pytestmark = pytest.mark.usefixtures("samples")


class Owners(ProcFs):
    """Processes that belong to whom the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.uids: dict[int, int] = {}

    def owner(self, pid: int) -> int | None:
        return self.uids.get(pid, 0)


def worker_of_us(puppet: Puppet, fs: ProcFs) -> Job:
    """The puppet's process as a worker of a job whose first process is this one."""
    job = Job(puppet, goes_in)
    root = Target(key_of(os.getpid()), fs)
    job.inside = AgentManager(root, enter=goes_in, guard=Caught(strict=True))
    return job


def test_an_agent_that_is_there_is_linked_without_entering(puppet: Puppet) -> None:
    job = Job(puppet, stays_out)
    job.who = trainer(puppet, frameworks={})
    job.until(lambda found: found and found.method == "agent")
    assert job.tried == 0
    job.inside.leave(1.0)


def test_who_only_observes_touches_nothing(puppet: Puppet) -> None:
    job = Job(puppet, goes_in, observe=True)
    assert job.tick() is not None
    assert job.tick(10.0) is not None
    member = job.tick(10.0)
    assert member is not None
    assert member.method == OUTSIDE
    assert job.tried == 0
    job.inside.leave(1.0)


def test_a_process_without_a_framework_or_python_is_left_alone(puppet: Puppet) -> None:
    puppet.do("bye")
    job = Job(puppet, goes_in)
    for frameworks in ({}, None, {"julia": None}):
        job.who = trainer(puppet, frameworks=frameworks)
        assert job.tick(10.0) is None
        assert job.tick(10.0) is None
    job = Job(puppet, goes_in)
    job.who = trainer(puppet, python=None)
    assert job.tick() is None
    assert job.tried == 0


def test_why_the_first_process_is_not_entered(puppet: Puppet) -> None:
    puppet.do("bye")
    job = Job(puppet, goes_in)
    job.who = trainer(puppet, frameworks={})
    job.tick()
    assert job.inside.not_entered is not None
    assert "neither JAX nor PyTorch" in job.inside.not_entered.what
    assert job.inside.not_entered.next_step == (
        "It is entered as soon as it loads one; 15 s after its start in any case, to see its lines"
        " and its garbage collector."
    )
    job.who = trainer(puppet)
    job.tick()
    assert job.inside.not_entered is None
    job.inside.leave(1.0)


def test_who_is_named_is_entered_whatever_it_has_loaded(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    puppet.do("bye")
    job = Job(puppet, goes_in)
    job.who = trainer(puppet, frameworks={})
    assert job.tick(10.0) is None
    monkeypatch.setattr(agent_manager, "NAMED_SECONDS", 0.0)
    member = job.tick(1.0)
    assert member is not None
    job.until(lambda _: job.tried)
    assert job.inside.not_entered is None
    job.inside.leave(1.0)


def test_who_has_just_started_others_is_not_entered_in_place_of_them(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    puppet.do("bye")
    job = Job(puppet, goes_in)
    child = replace(trainer(puppet, frameworks={}), key=key_of(os.getpid()))
    ages = {puppet.key: 100.0, child.key: 1.0}
    monkeypatch.setattr(agent_manager, "lived", ages.__getitem__)
    stats = {key: stat for key in ages if (stat := FS.stat(key.pid)) is not None}
    known = {puppet.key: trainer(puppet, frameworks={})}

    def tick() -> bool:
        began = job.inside._began_ns / 1e9
        job.inside.tick(began + job.now, stats, known)
        return any(each.is_named for each in job.inside.processes())

    job.now = 1.0
    # Nobody has looked at the child yet, then it is young.
    assert not tick()
    known[child.key] = child
    assert not tick()
    ages[child.key] = 20.0
    assert tick()
    job.inside.leave(1.0)


def test_one_that_starts_others_all_the_time_is_entered_in_the_end(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    puppet.do("bye")
    job = Job(puppet, goes_in)
    child = replace(trainer(puppet, frameworks={}), key=key_of(os.getpid()))
    known = {puppet.key: trainer(puppet, frameworks={}), child.key: child}
    ages = {puppet.key: 100.0, child.key: 1.0}
    monkeypatch.setattr(agent_manager, "lived", ages.__getitem__)
    stats = {key: stat for key in ages if (stat := FS.stat(key.pid)) is not None}
    for late, named in ((14.0, False), (16.0, True)):
        job.inside.tick(job.inside._began_ns / 1e9 + late, stats, known)
        assert any(each.is_named for each in job.inside.processes()) is named
    job.inside.leave(1.0)


def test_who_was_started_by_us_or_does_not_run_python_is_not(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_manager, "NAMED_SECONDS", 0.0)
    puppet.do("bye")
    brought = Job(puppet, goes_in, brought=True)
    brought.who = trainer(puppet, frameworks={})
    native = Job(puppet, goes_in)
    native.who = trainer(puppet, frameworks={}, python=None)
    observed = Job(puppet, goes_in, observe=True)
    observed.who = trainer(puppet, frameworks={})
    for job in (brought, native, observed):
        job.tick(10.0)
        job.tick(10.0)
        assert job.tried == 0
        job.inside.leave(1.0)


def test_another_users_process_is_entered_only_if_wanted(puppet: Puppet) -> None:
    fs = Owners()
    fs.uids[puppet.pid] = 1000
    job = worker_of_us(puppet, fs)
    member = job.tick(10.0)
    assert member is not None
    assert member.refusal is not None
    assert "--any-user" in member.refusal.next_step
    assert job.tried == 0


def test_a_refusal_is_shown_once_and_tried_again_a_few_times(puppet: Puppet) -> None:
    puppet.do("bye")
    job = Job(puppet, stays_out)
    member = job.until(lambda found: found and found.method == OUTSIDE)
    assert member is not None
    assert member.refusal == BUSY
    assert job.inside.readings()[puppet.key].unknown[m.PROCESS_GC_PAUSE] == NO_AGENT
    job.until(lambda _: job.tried == MOST_TRIES, step=50.0)
    for _ in range(20):
        job.tick(1000.0)
    job.inside.leave(1.0)
    assert job.tried == MOST_TRIES
    refused = [event for event in job.events if event.kind == "agent_refused"]
    assert [event.text for event in refused] == ["Process 1 is busy. Try again."]


def test_after_enough_tries_a_socket_alone_brings_nobody_in(puppet: Puppet) -> None:
    tracked = TrackedProcess(
        puppet.key, trainer(puppet), 0.0, Address.of(puppet.key, FS), tries=MOST_TRIES
    )
    stat = FS.stat(puppet.pid)
    assert stat is not None
    assert not tracked.may_inject
    assert tracked.is_due(0.0, stat)
    tracked.left(1.0)
    assert not tracked.is_due(2.0, stat)


def test_a_way_in_that_hangs_is_said_and_the_rest_goes_on(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach_queue, "HANG_SECONDS", 0.05)
    go_on = threading.Event()

    def hangs(target: Target) -> Outcome:
        go_on.wait(20)
        return goes_in(target)

    job = Job(puppet, hangs)
    member = job.until(lambda found: found and found.method == OUTSIDE)
    assert member is not None
    assert member.refusal is not None
    assert "The way in hangs" in member.refusal.what
    job.tick()
    assert job.kinds().count("agent_refused") == 1
    go_on.set()
    job.until(is_inside)
    job.inside.leave(1.0)


def test_a_defect_of_ours_is_a_refusal(puppet: Puppet) -> None:
    def breaks(target: Target) -> Outcome:
        raise KeyError("oops")

    job = Job(puppet, breaks)
    member = job.until(lambda found: found and found.method == OUTSIDE)
    assert member is not None
    assert member.refusal is not None
    assert "KeyError" in member.refusal.what
    job.inside.leave(1.0)


def test_a_stopped_process_is_tried_when_it_goes_on(puppet: Puppet) -> None:
    job = Job(puppet, stays_out)
    os.kill(puppet.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, puppet.pid, os.WSTOPPED | os.WNOWAIT)
    job.until(lambda found: found and found.method == OUTSIDE)
    tried = job.tried
    for _ in range(5):
        job.tick(1000.0)
    assert job.tried == tried
    os.kill(puppet.pid, signal.SIGCONT)
    job.until(lambda _: job.tried == tried + 1)
    job.inside.leave(1.0)


def test_a_refusal_of_who_is_stopped_says_that_we_go_in_by_ourselves(puppet: Puppet) -> None:
    tracked = TrackedProcess(puppet.key, trainer(puppet), 0.0, is_stopped=True)
    said = agent_events.refused(
        tracked, Refusal("It is stopped.", "kill -CONT, then: monitor attach")
    )
    assert said.startswith(f"It is stopped. Let it go on: kill -CONT {puppet.pid} ")
    assert said.endswith("This monitor then goes in by itself.")


def test_a_launcher_that_changes_its_user_is_still_the_job(puppet: Puppet) -> None:
    fs = Owners()
    job = Job(puppet, goes_in)
    job.inside = AgentManager(Target(puppet.key, fs), enter=goes_in, guard=Caught(strict=True))
    fs.uids[puppet.pid] = 1000
    job.until(is_inside)
    job.inside.leave(1.0)


def test_a_worker_is_entered_when_its_job_has_become_its_users(puppet: Puppet) -> None:
    fs = Owners()
    fs.uids[puppet.pid] = 1000
    job = worker_of_us(puppet, fs)
    member = job.tick(10.0)
    assert member is not None
    assert member.refusal is not None
    assert "belongs to another user" in member.refusal.what
    fs.uids[os.getpid()] = 1000
    job.until(is_inside)
    job.inside.leave(1.0)


def test_a_worker_that_has_become_another_users_is_not_entered_again(puppet: Puppet) -> None:
    fs = Owners()
    job = worker_of_us(puppet, fs)
    job.until(is_inside)
    puppet.do("bye")
    job.until(lambda _: "agent_left" in job.kinds())
    fs.uids[puppet.pid] = 1000
    member = job.tick(10.0)
    assert member is not None
    assert member.refusal is not None
    assert "belongs to another user" in member.refusal.what
    assert not job.inside.processes()[0].on_the_way
    job.inside.leave(1.0)

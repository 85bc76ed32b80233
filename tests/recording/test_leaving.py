"""How agents leave, by themselves and at the end, and what is reported of it."""

from __future__ import annotations

import time

import pytest

from tests.link.conftest import FS, Puppet
from tests.recording.seated import Caught, Job, a_job, goes_in, is_inside, trainer
from whyidle.agents import wire
from whyidle.monitor.attach.answers import PTRACE
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording import agent_events
from whyidle.monitor.recording.agent_manager import AgentManager
from whyidle.monitor.recording.attach_queue import AttachQueue

pytestmark = pytest.mark.usefixtures("samples")
job = pytest.fixture(a_job)


def test_an_agent_that_goes_is_followed_by_another(job: Job) -> None:
    job.until(is_inside)
    job.puppet.do("bye")
    job.until(lambda _: "agent_left" in job.kinds())
    assert "heard nothing from us" in job.events[-1].text
    job.until(lambda _: job.tried == 2)


def test_the_last_words_of_a_killed_process_are_kept(job: Job) -> None:
    job.until(is_inside)
    frame = ["/job/train.py", 8, "load"]
    job.puppet.write("stacks", 10**9, 4, [[4, frame, [frame]]])
    job.puppet.process.kill()
    job.puppet.process.wait()
    job.inside.leave(5.0)
    job.events += job.inside.take_events()
    assert job.kinds() == ["agent_entered", "stacks", "agent_left"]
    assert not job.puppet.spool.exists()


def test_at_the_end_every_agent_is_asked_to_leave(job: Job) -> None:
    job.until(is_inside)
    job.inside.leave(5.0)
    job.events += job.inside.take_events()
    assert "the agent has left" in job.events[-1].text
    assert job.inside.last_word == "detached"
    assert not job.puppet.socket.exists()


def test_an_end_does_not_wait_for_an_agent_that_hangs(job: Job) -> None:
    job.until(is_inside)
    job.puppet.do("hang")
    job.inside.leave(0.05)
    job.events += job.inside.take_events()
    assert "will go by itself" in job.events[-1].text


@pytest.mark.parametrize(
    ("bye", "said"),
    [
        ("closed", "the job closed its descriptors"),
        ("failed: OSError", "the agent has gone: failed: OSError"),
        ("no folder", "the agent has gone: no folder"),
        ("\x1b[2J" + "x" * 300, "the agent has gone: \\x1b[2J" + "x" * 76 + "…"),
        ("", "without a word"),
        (None, "without a word"),
    ],
)
def test_why_an_agent_left_is_reported_as_it_said(bye: str | None, said: str) -> None:
    assert agent_events.why_gone(bye).endswith(said)


def test_of_a_job_that_ended_soon_its_first_process_is_stored_all_the_same(job: Job) -> None:
    job.until(is_inside)
    assert job.inside.last_members() == ()
    job.inside.processes()[0].is_young = True
    job.inside.leave(5.0)
    (last,) = job.inside.last_members()
    assert (last.key, last.method, last.settled) == (job.puppet.key, PTRACE, True)


def test_what_the_last_tick_has_stored_is_not_stored_again_by_an_end_that_fails(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.until(is_inside)
    job.puppet.write("gauges", {wire.PYTHON_THREADS: 4})
    job.until(lambda _: job.puppet.key in job.inside.readings())
    with monkeypatch.context() as patch:
        patch.setattr(AttachQueue, "close", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.inside.leave(1.0)
    assert job.inside.readings() == {}


@pytest.mark.parametrize("fails", ["ask_to_leave", "exchange", "sweep"])
def test_one_process_that_fails_keeps_no_other_agent_from_leaving(
    fails: str, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Puppet(str(puppet.folder.parent))
    try:
        guard = Caught()
        inside = AgentManager(Target(puppet.key, FS), enter=goes_in, guard=guard)
        known = {each.key: trainer(each) for each in (puppet, other)}
        deadline = time.monotonic() + 10
        while [member.method for member in inside.members()] != [PTRACE, PTRACE]:
            assert time.monotonic() < deadline
            stats = {key: stat for key in known if (stat := FS.stat(key.pid))}
            inside.tick(time.monotonic(), stats, known)
            time.sleep(0.001)
        assert guard.where == []
        inside.take_events()
        first, second = inside.processes()
        second.is_young = False
        monkeypatch.setattr(first.link, fails, lambda: 1 / 0)
        inside.leave(5.0)
        assert guard.where
        assert second.link is None
        left = [event.text for event in inside.take_events() if event.key == second.key]
        assert "the agent has left" in left[-1]
    finally:
        other.end()

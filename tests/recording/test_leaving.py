"""How agents leave, by themselves and at the end, and what is reported of it."""

from __future__ import annotations

import pytest

from tests.recording.seated import Job, a_job, is_inside
from whyidle.monitor.attach.answers import PTRACE
from whyidle.monitor.recording import agent_events

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

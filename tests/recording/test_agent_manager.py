"""What a process reports once it is entered; with fake agents."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.link.conftest import Puppet
from tests.recording.seated import Job, a_job, goes_in, is_inside
from whyidle.agents import wire
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.recording import agent_events
from whyidle.monitor.recording import agent_manager as module
from whyidle.monitor.recording.stats import figures, stalls

pytestmark = pytest.mark.usefixtures("samples")
job = pytest.fixture(a_job)


def test_a_process_is_entered_and_reports(job: Job) -> None:
    member = job.tick()
    assert member is not None
    assert member.method is None
    entered = job.until(is_inside)
    assert entered is not None
    assert entered.stops_ms == (0.5, 0.25)
    job.puppet.write("gauges", {wire.PYTHON_THREADS: 4, wire.GC_NS: 0})
    frame = ["/job/train.py", 8, "load"]
    job.puppet.write("stacks", 10**9, 4, [[3, frame, [frame]], [1, frame, []]])
    member = job.until(lambda found: found and found.where)
    assert member is not None
    assert member.reading.values[m.PROCESS_PYTHON_THREADS] == 4
    assert (member.where[0].line, member.where[0].share) == (8, 0.75)
    assert job.kinds() == ["agent_entered"]
    assert "by ptrace; it paused for 0.5 + 0.2 ms." in job.events[0].text


def test_the_whole_job_counts_its_agents(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "SHORTEST_S", 0.0)
    monkeypatch.setattr(figures, "MOST_RATE", float("inf"))
    before = Reading()
    job.tick()
    job.inside.put_job(before)
    assert before.values[m.JOB_AGENTS] == 0
    assert before.unknown[m.JOB_GC_PAUSE] == "no agent in the job"
    job.until(is_inside)
    for share in (0, 0.25):
        job.puppet.write("gauges", {wire.GC_NS: share * time.monotonic_ns(), wire.AGENT_CPU_NS: 0})
        job.until(lambda _: job.puppet.key in job.inside.readings())
    after = Reading()
    job.inside.put_job(after)
    assert after.values[m.JOB_AGENTS] == 1
    assert after.values[m.JOB_GC_PAUSE] == 1.0
    assert after.values[m.JOB_AGENT_CPU] == 0


def test_what_trains_and_how_fast_is_reported_from_inside(job: Job) -> None:
    job.until(is_inside)
    job.puppet.write("state", "torch", {"version": "2.13.0", "batch_size": 32})
    job.puppet.write("steps", "optimizer", 10**9, 4, [200_000_000, 250_000_000])
    job.puppet.write("compile", "jax", "step", 10**9, "a new shape", ["/job/a.py", 3, "f"], False)
    job.puppet.write("gauges", {wire.STEPS: 4})
    member = job.until(lambda found: found and m.PROCESS_STEPS in found.reading.values)
    assert member is not None
    assert member.framework == {"torch": {"version": "2.13.0", "batch_size": 32}}
    assert member.steps_source == "optimizer"
    whole = Reading()
    job.inside.put_job(whole)
    assert whole.values[m.JOB_STEP_P95] == 0.25
    job.until(lambda _: "compile" in job.kinds())
    assert job.inside.counted()[job.puppet.key]["steps"] == 4
    job.puppet.do("exit")
    job.until(lambda _: not job.inside.members())
    assert job.inside.counted()[job.puppet.key]["steps"] == 4
    assert "framework" in job.kinds()


def test_the_first_of_a_kind_are_news_and_a_thousand_are_not(job: Job) -> None:
    job.until(is_inside)
    for i in range(40):
        at = ["/job/a.py", i, "f"]
        job.puppet.write("compile", "jax", f"f{i}", 10**9, None, at, False)
    job.until(lambda _: job.kinds().count("compile") >= stalls.FIRST_SINGLY)
    news = [event for event in job.events if event.kind == "compile" and event.is_news]
    assert len(news) == agent_events.MOST_REPORTED


def test_what_was_before_our_time_is_not_reported(puppet: Puppet) -> None:
    frame = ["/job/train.py", 8, "load"]
    puppet.write("stacks", 10**9, 4, [[4, frame, [frame]]])
    job = Job(puppet, goes_in)
    job.until(is_inside)
    member = job.tick()
    assert member is not None
    assert member.looks == 0
    job.inside.leave(1.0)


def test_where_it_was_before_it_stopped_says_nothing(job: Job) -> None:
    job.until(is_inside)
    frame = ["/job/train.py", 8, "load"]
    job.puppet.write("stacks", 10**9, 4, [[4, frame, [frame]]])
    job.until(lambda found: found and found.where)
    os.kill(job.puppet.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, job.puppet.pid, os.WSTOPPED | os.WNOWAIT)
    member = job.tick()
    assert member is not None
    assert (member.where, member.looks) == ((), 0)
    os.kill(job.puppet.pid, signal.SIGCONT)


def test_no_seat_is_made_for_whom_there_is_no_room(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_MEMBERS", 0)
    monkeypatch.setattr(module, "TrackedProcess", None)
    assert Job(puppet, goes_in).tick() is None

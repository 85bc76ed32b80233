"""Which processes are entered, when, and what becomes of them; with agents that are none."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.link.conftest import FS, Puppet
from whyidle.agents import wire
from whyidle.monitor import metrics as m
from whyidle.monitor.attach.answers import OUTSIDE, PTRACE, Outcome, Refusal, Rung
from whyidle.monitor.attach.outside import Place
from whyidle.monitor.attach.target import Target
from whyidle.monitor.link.channel import Address
from whyidle.monitor.processes.process import Identity, ProcessKey, describe
from whyidle.monitor.processes.procfs import ProcFs, Stat
from whyidle.monitor.reading import Reading
from whyidle.monitor.recording import bulletin, compiles, entering, figures, onlooker, told
from whyidle.monitor.recording import inside as module
from whyidle.monitor.recording.inside import Inside
from whyidle.monitor.recording.seats import MOST_TRIES, NO_AGENT, Seat
from whyidle.monitor.recording.snapshot import JobEvent, Member

Way = Callable[[Target], Outcome]
BUSY = Refusal("Process 1 is busy.", "Try again.")


def goes_in(target: Target) -> Outcome:
    return Outcome(PTRACE, (Rung(PTRACE),), (0.5, 0.25), 0.1)


def stays_out(target: Target) -> Outcome:
    return Outcome(OUTSIDE, (Rung(PTRACE, BUSY), Rung(OUTSIDE)))


def trainer(puppet: Puppet, **known: object) -> Identity:
    found = describe(puppet.pid, FS)
    assert found is not None
    return replace(found, **{"frameworks": {"torch": "2"}, **known})  # type: ignore[arg-type]


class Job:
    """The puppet's process as a job, ticked by hand."""

    def __init__(self, puppet: Puppet, way: Way, **wanted: bool) -> None:
        self.puppet = puppet
        self.tried = 0
        self.who = trainer(puppet)
        self.now = 100.0
        self.events: list[JobEvent] = []
        self.inside = Inside(puppet.key, FS, enter=self._counted(way), **wanted)

    def _counted(self, way: Way) -> Way:
        def enter(target: Target) -> Outcome:
            self.tried += 1
            return way(target)

        return enter

    def tick(self, seconds: float = 0.0) -> Member | None:
        self.now += seconds
        stat = FS.stat(self.puppet.pid)
        alive = stat is not None and not stat.has_ended
        stats: dict[object, Stat] = {self.puppet.key: stat} if alive and stat else {}
        self.inside.tick(self.now, stats, {self.puppet.key: self.who})  # type: ignore[arg-type]
        self.events += self.inside.take_events()
        members = self.inside.members()
        return members[0] if members else None

    def until(self, enough: Callable[[Member | None], object], step: float = 0.0) -> Member | None:
        deadline = time.monotonic() + 10
        while not enough(member := self.tick(step)):
            assert time.monotonic() < deadline, (member, self.events)
            time.sleep(0.001)
        return member

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


class Looks:
    """What py-spy would see."""

    open = 0
    refused: Refusal | None = None

    def __init__(self, key: ProcessKey, fs: ProcFs) -> None:
        self.rounds = [[], [Place("/job/train.py", 8, "load", 3), Place("/job/a.py", 1, "f", 1)]]
        Looks.open += 1

    def poll(self) -> list[Place]:
        return self.rounds.pop(0) if self.rounds else []

    def close(self) -> None:
        Looks.open -= 1


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> type[Looks]:
    monkeypatch.setattr(onlooker, "Outside", Looks)
    monkeypatch.setattr(Looks, "open", 0)
    return Looks


@pytest.fixture
def job(puppet: Puppet) -> Iterator[Job]:
    found = Job(puppet, goes_in)
    yield found
    found.inside.leave(0.1)


def is_inside(member: Member | None) -> bool:
    return member is not None and member.method == PTRACE


def test_a_process_is_entered_and_tells(job: Job) -> None:
    member = job.tick()
    assert member is not None
    assert member.method is None
    entered = job.until(is_inside)
    assert entered is not None
    assert entered.stops_ms == (0.5, 0.25)
    job.puppet.write("gauges", {wire.PYTHON_THREADS: 4, wire.GC_NS: 0})
    look = ["/job/train.py", 8, "load"]
    job.puppet.write("stacks", 10**9, 4, [[3, look, [look]], [1, look, []]])
    member = job.until(lambda found: found and found.where)
    assert member is not None
    assert member.reading.values[m.PROCESS_PYTHON_THREADS] == 4
    assert (member.where[0].line, member.where[0].share) == (8, 0.75)
    assert job.kinds() == ["agent_entered"]
    assert "by ptrace; it stood still 0.5 + 0.2 ms." in job.events[0].text


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


def test_what_trains_and_how_fast_is_told_from_inside(job: Job) -> None:
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
    job.until(lambda _: job.kinds().count("compile") >= compiles.FIRST_TOLD)
    news = [event for event in job.events if event.kind == "compile" and event.is_news]
    assert len(news) == bulletin.MOST_TOLD


def test_a_refusal_is_told_once_and_tried_again_a_few_times(puppet: Puppet) -> None:
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


class Worker:
    """The puppet's process as a worker of another one, as old as wanted."""

    def __init__(self, puppet: Puppet, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
        self.age = 2.0
        monkeypatch.setattr(module, "lived", lambda _: self.age)
        self.job = Job(puppet, way)
        self.job.inside = Inside(ProcessKey(1, 0), FS, enter=way, any_user=True)

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


def test_what_happened_to_a_worker_is_told_when_it_has_stayed(
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


def test_after_enough_tries_a_socket_alone_brings_nobody_in(puppet: Puppet) -> None:
    seat = Seat(puppet.key, trainer(puppet), 0.0, Address.of(puppet.key, FS), tries=MOST_TRIES)
    stat = FS.stat(puppet.pid)
    assert stat is not None
    assert not seat.may_inject
    assert seat.is_due(0.0, stat)
    seat.left(1.0)
    assert not seat.is_due(2.0, stat)


def test_a_way_in_that_hangs_is_said_and_the_rest_goes_on(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entering, "HANG_SECONDS", 0.05)
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
def test_why_an_agent_went_is_told_as_it_said(bye: str | None, said: str) -> None:
    assert told.why_gone(bye).endswith(said)


def test_no_seat_is_made_for_whom_there_is_no_room(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_MEMBERS", 0)
    monkeypatch.setattr(module, "Seat", None)
    assert Job(puppet, goes_in).tick() is None


def test_sentences_of_many_processes_are_told_a_few_times(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = onlooker.Onlooker(FS)
    events = []
    for pid in range(20):
        monkeypatch.setattr(Looks, "refused", Refusal(f"py-spy cannot look into {pid}."))
        seat = Seat(ProcessKey(pid, 1), trainer(puppet), 0.0, barred=BUSY, is_young=False)
        events += look.tick([seat])
    assert len(events) == onlooker.MOST_TOLD
    look.close()


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


def test_another_users_process_is_entered_only_if_wanted(
    puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = [0]
    monkeypatch.setattr(ProcFs, "owner", lambda _self, _pid: owners[-1])
    job = Job(puppet, goes_in)
    owners.append(1000)
    member = job.tick()
    assert member is not None
    assert member.refusal is not None
    assert "--any-user" in member.refusal.next_step
    assert job.tried == 0


def test_an_agent_that_goes_is_followed_by_another(job: Job) -> None:
    job.until(is_inside)
    job.puppet.do("bye")
    job.until(lambda _: "agent_left" in job.kinds())
    assert "heard nothing from us" in job.events[-1].text
    job.until(lambda _: job.tried == 2)


def test_the_last_words_of_a_killed_process_are_kept(job: Job) -> None:
    job.until(is_inside)
    look = ["/job/train.py", 8, "load"]
    job.puppet.write("stacks", 10**9, 4, [[4, look, [look]]])
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


def test_what_was_before_our_time_is_not_ours_to_tell(puppet: Puppet) -> None:
    look = ["/job/train.py", 8, "load"]
    puppet.write("stacks", 10**9, 4, [[4, look, [look]]])
    job = Job(puppet, goes_in)
    job.until(is_inside)
    member = job.tick()
    assert member is not None
    assert member.looks == 0
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


def test_where_it_was_before_it_stopped_says_nothing(job: Job) -> None:
    job.until(is_inside)
    look = ["/job/train.py", 8, "load"]
    job.puppet.write("stacks", 10**9, 4, [[4, look, [look]]])
    job.until(lambda found: found and found.where)
    os.kill(job.puppet.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, job.puppet.pid, os.WSTOPPED | os.WNOWAIT)
    member = job.tick()
    assert member is not None
    assert (member.where, member.looks) == ((), 0)
    os.kill(job.puppet.pid, signal.SIGCONT)


def test_a_refusal_of_who_is_stopped_says_that_we_go_in_by_ourselves(puppet: Puppet) -> None:
    seat = Seat(puppet.key, trainer(puppet), 0.0, is_stopped=True)
    said = told.refused(seat, Refusal("It is stopped.", "kill -CONT, then: monitor attach"))
    assert said.startswith(f"It is stopped. Let it go on: kill -CONT {puppet.pid} ")
    assert said.endswith("This monitor then goes in by itself.")


def test_why_the_first_process_is_not_entered(puppet: Puppet) -> None:
    puppet.do("bye")
    job = Job(puppet, goes_in)
    job.who = trainer(puppet, frameworks={})
    job.tick()
    assert job.inside.not_entered is not None
    assert "neither JAX nor PyTorch" in job.inside.not_entered.what
    assert job.inside.not_entered.next_step == "It is entered as soon as it loads one."
    job.who = trainer(puppet)
    job.tick()
    assert job.inside.not_entered is None
    job.inside.leave(1.0)


def test_outside_the_main_thread_is_looked_at_until_the_agent_is_in(
    puppet: Puppet, looks: type[Looks]
) -> None:
    ways = [stays_out, goes_in]

    def way(target: Target) -> Outcome:
        return ways.pop(0)(target)

    job = Job(puppet, way)
    member = job.until(lambda found: found and found.where)
    assert member is not None
    assert (member.where[0].line, member.where[0].share, member.looks) == (8, 0.75, 4)
    assert job.kinds() == ["agent_refused", "stacks"]
    assert looks.open == 1
    job.until(is_inside, step=1.0)
    assert looks.open == 0
    job.inside.leave(1.0)


def test_without_py_spy_it_is_said_once(puppet: Puppet, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Refusal("py-spy is not installed.", "pip install py-spy")
    monkeypatch.setattr(Looks, "refused", missing)
    job = Job(puppet, goes_in, observe=True)
    for _ in range(3):
        job.tick(1.0)
    said = [event.text for event in job.events if event.kind == "outside_refused"]
    assert said == ["py-spy is not installed. pip install py-spy"]

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import start_job
from whyidle.monitor.processes import naming as module
from whyidle.monitor.processes.naming import LOOK_AFTER_SECONDS, SETTLED_SECONDS, Naming
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.processes.procfs import TICKS_PER_SECOND, ProcFs


def key_of(pid: int) -> ProcessKey:
    stat = ProcFs().stat(pid)
    assert stat is not None
    return ProcessKey(pid, stat.start_ticks)


def test_a_process_is_checked_a_few_times_and_no_more() -> None:
    with start_job() as job:
        key = key_of(job.pid)
        naming = Naming(key, ProcFs())
        readings = [
            bool(naming._due(now, key) and naming.look(now, [key]) is not None) for now in range(90)
        ]
        assert sum(readings) == len(LOOK_AFTER_SECONDS)
        job.kill()
    who = naming.leader()
    assert who is not None
    assert who.key == key


def test_the_ended_are_forgotten_but_not_the_job() -> None:
    with start_job() as job, start_job() as helper:
        root, other = key_of(job.pid), key_of(helper.pid)
        naming = Naming(root, ProcFs())
        naming.look(0.0, [root, other])
        assert set(naming.known) == {root, other}
        naming.look(1.0, [])
        assert set(naming.known) == {root}
        job.kill()
        helper.kill()


def test_what_lives_briefly_gets_no_name() -> None:
    just_now = int(float((ProcFs().text("uptime") or "").split()[0]) * TICKS_PER_SECOND)
    root, other, old = ProcessKey(1, 1), ProcessKey(2, just_now), ProcessKey(3, 0)
    naming = Naming(root, ProcFs())
    naming.look(100.0, [root, other, old])
    assert naming.settled(100.0, root)
    assert naming.settled(100.0, old)
    assert not naming.settled(100.0 + SETTLED_SECONDS - 1, other)
    assert naming.settled(100.0 + SETTLED_SECONDS, other)


Job = tuple[Naming, dict[ProcessKey, Identity]]
ROOT, TEE, TRAINER, LATER = (ProcessKey(n, n) for n in (1, 2, 3, 4))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A launcher without a framework, and the processes that a test adds to the dict."""

    def who(key: ProcessKey, *frameworks: str) -> Identity:
        found: dict[str, str | None] = dict.fromkeys(frameworks)
        return Identity(key, 0, "a", "a", f"{key.pid}", "me", None, found, None, "S")

    everybody = {ROOT: who(ROOT), TEE: who(TEE), TRAINER: who(TRAINER, "jax")}
    everybody[LATER] = who(LATER, "jax")
    by_pid = {key.pid: identity for key, identity in everybody.items()}
    monkeypatch.setattr(module, "describe", lambda pid, _fs: by_pid.get(pid))
    return Naming(ROOT, ProcFs()), everybody


def test_a_job_is_named_after_its_oldest_worker_with_a_framework(job: Job) -> None:
    naming, who = job
    naming.look(0.0, [ROOT, TEE])
    assert naming.leader() == who[ROOT]
    naming.look(1.0, [ROOT, TEE, TRAINER, LATER])
    assert naming.leader() == who[TRAINER]
    naming.look(2.0, [ROOT, TEE])
    assert naming.leader() == who[TRAINER]


def test_a_worker_that_ended_gives_its_place_to_one_that_lives_and_that_is_news(job: Job) -> None:
    naming, who = job
    naming.look(0.0, [ROOT, TRAINER, LATER])
    assert naming.look(1.0, [ROOT, LATER]) == {LATER}
    assert naming.leader() == who[LATER]


def test_without_its_launcher_a_job_is_named_after_who_is_left(job: Job) -> None:
    naming, who = job
    naming.look(0.0, [ROOT, TEE])
    assert naming.look(1.0, [TEE]) == {TEE}
    assert naming.leader() == who[TEE]
    naming.look(2.0, [TEE, LATER])
    assert naming.leader() == who[LATER]


def test_who_is_left_is_no_better_name_than_the_training(job: Job) -> None:
    naming, who = job
    naming.root = TRAINER
    naming.look(0.0, [TEE, TRAINER])
    naming.look(1.0, [TEE])
    assert naming.leader() == who[TRAINER]


def test_a_job_that_has_ended_keeps_its_name(job: Job) -> None:
    naming, who = job
    naming.look(0.0, [ROOT])
    naming.look(1.0, [])
    assert naming.leader() == who[ROOT]


def test_a_title_that_comes_later_is_taken_in(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    naming, who = job
    naming.look(0.0, [ROOT, TRAINER])
    title = "VLLM::Worker"
    monkeypatch.setattr(naming._fs, "arguments", lambda pid: [title] if pid == TRAINER.pid else [])
    titled = replace(who[TRAINER], arguments=(title,))
    monkeypatch.setattr(module, "describe", lambda _pid, _fs: titled)
    assert TRAINER not in naming.look(1.0, [ROOT, TRAINER])
    assert TRAINER in naming.look(LOOK_AFTER_SECONDS[1], [ROOT, TRAINER])
    assert naming.known[TRAINER].title == title
    # Its maps are read no more, and its title only a few times.
    later = [naming.look(float(now), [TRAINER]) for now in range(5, 90)]
    assert not any(TRAINER in changed for changed in later)

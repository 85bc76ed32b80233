from __future__ import annotations

from tests.conftest import start_job
from whyidle.monitor.processes.naming import LOOK_AFTER_SECONDS, SETTLED_SECONDS, Naming
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs


def key_of(pid: int) -> ProcessKey:
    stat = ProcFs().stat(pid)
    assert stat is not None
    return ProcessKey(pid, stat.start_ticks)


def test_a_process_is_looked_at_a_few_times_and_no_more() -> None:
    with start_job() as job:
        key = key_of(job.pid)
        naming = Naming(key, ProcFs())
        looks = [
            bool(naming._due(now, key) and naming.look(now, [key]) is not None) for now in range(90)
        ]
        assert sum(looks) == len(LOOK_AFTER_SECONDS)
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
    root, other = ProcessKey(1, 1), ProcessKey(2, 2)
    naming = Naming(root, ProcFs())
    naming.look(100.0, [root, other])
    assert naming.settled(100.0, root)
    assert not naming.settled(100.0 + SETTLED_SECONDS - 1, other)
    assert naming.settled(100.0 + SETTLED_SECONDS, other)

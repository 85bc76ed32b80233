"""What is seen from outside: without an agent, and beside one."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.link.conftest import FS, Puppet
from tests.recording.records import stacks, steps, take
from tests.recording.seated import BUSY, Job, Samples, goes_in, is_inside, stays_out, trainer
from whyidle.monitor.attach.answers import Outcome, Refusal
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.link.records import Frame, StackCount, Steps
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.processes.ranks import Rank
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording.stacks import external_sampler
from whyidle.monitor.recording.tracked_process import TrackedProcess, stepping

pytestmark = pytest.mark.usefixtures("samples")

LOAD, OTHER = Frame("/job/train.py", 8, "load"), Frame("/job/a.py", 1, "f")
SEEN = stacks(1.0, StackCount(3, LOAD, [LOAD], None, 3, 1), StackCount(1, OTHER, [OTHER]))


def stored(job: Job) -> list[JobEvent]:
    return [event for event in job.events if event.kind == "stacks"]


def test_the_main_thread_is_sampled_from_outside_before_and_after_the_agent_is_in(
    puppet: Puppet, samples: type[Samples]
) -> None:
    ways = [stays_out, goes_in]

    def way(target: Target) -> Outcome:
        return ways.pop(0)(target)

    job = Job(puppet, way)
    job.until(lambda _: samples.watched)
    assert samples.watched == {puppet.key: external_sampler.HZ}
    samples.seen[puppet.key] = SEEN, 0
    member = job.until(lambda found: found and found.where)
    assert member is not None
    assert (member.where[0].line, member.where[0].share, member.looks) == (8, 0.75, 4)
    job.until(is_inside, step=1.0)
    assert samples.watched == {puppet.key: external_sampler.HZ}
    job.inside.leave(1.0)
    assert samples.closed


def test_beside_samples_from_outside_the_agents_own_are_not_kept(
    puppet: Puppet, samples: type[Samples]
) -> None:
    job = Job(puppet, goes_in)
    job.until(is_inside)
    samples.seen[puppet.key] = SEEN, 2
    member = job.until(lambda found: found and found.where)
    puppet.write("stacks", 10**9, 7, [[7, ["/job/agent.py", 5, "g"], []]])
    time.sleep(0.05)
    job.tick()
    assert member is not None
    assert member.where[0].file == "/job/train.py"
    job.inside.leave(1.0)
    job.events += job.inside.take_events()
    (event,) = stored(job)
    assert event.data is not None
    assert (event.data["source"], event.data["samples"], event.data["torn"]) == ("outside", 4, 2)


def test_where_it_cannot_be_read_the_agents_own_samples_count(
    puppet: Puppet, samples: type[Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "refused", Refusal("The memory may not be read."))
    job = Job(puppet, goes_in)
    job.until(is_inside)
    puppet.write("stacks", 10**9, 7, [[7, ["/job/a.py", 5, "g"], [["/job/a.py", 5, "g"]]]])
    member = job.until(lambda found: found and found.where)
    assert member is not None
    assert (member.where[0].line, member.looks) == (5, 7)
    job.inside.leave(1.0)
    job.events += job.inside.take_events()
    (event,) = stored(job)
    assert event.data is not None
    assert "source" not in event.data
    # With an agent nothing is missing.
    assert "outside_refused" not in job.kinds()


def test_why_it_cannot_be_read_is_said_once(
    puppet: Puppet, samples: type[Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Refusal("The memory may not be read.", "sudo monitor")
    monkeypatch.setattr(samples, "refused", missing)
    job = Job(puppet, goes_in, observe=True)
    for _ in range(3):
        job.tick(1.0)
    said = [event.text for event in job.events if event.kind == "outside_refused"]
    assert said == ["The memory may not be read. sudo monitor"]


def tracked(puppet: Puppet, pid: int, rank: int | None = None) -> TrackedProcess:
    who = replace(trainer(puppet), rank=None if rank is None else Rank(rank, None, 8, "torchrun"))
    return TrackedProcess(ProcessKey(pid, 1), who, 0.0, barred=BUSY, is_young=False)


def test_what_loops_beside_those_that_train_makes_no_step_of_the_job(puppet: Puppet) -> None:
    """Each process that trains counts its own, one plays by itself; alone its turns count."""
    second, found = 10**9, [tracked(puppet, pid) for pid in (1, 2, 3)]
    for each, source, count in zip(
        found, ("loop", "optimizer", "optimizer"), (9, 90, 80), strict=True
    ):
        each.agent_stats.take(
            [Steps(second, source, second, count, [second // count])], lambda t: t
        )

    def rates(some: list[TrackedProcess]) -> list[float | None]:
        steps = stepping(some)
        readings = (each.of_job(steps=each in steps) for each in some)
        return [reading.get(m.PROCESS_STEP_P50) for reading in readings]

    for each in found:
        each.agent_stats.latest = Reading({m.PROCESS_STEP_P50: 0.1})
        each.link = object()  # type: ignore[assignment]
    assert [each.trains for each in found] == [False, True, True]
    assert rates(found) == [None, 0.1, 0.1]
    assert rates(found[:1]) == [0.1]
    # Of parts those that compute for the others make its steps.
    for each, title in zip(found, ("VLLM::Worker", "VLLM::EngineCore", ""), strict=True):
        each.identity = replace(each.identity, arguments=(title,))
        each.agent_stats.steps.source = "loop"
    assert rates(found) == [0.1, None, None]


def test_reasons_of_many_processes_are_shown_a_few_times(
    puppet: Puppet, samples: type[Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = external_sampler.ExternalSampler(FS)
    events = []
    for pid in range(20):
        monkeypatch.setattr(samples, "refused", Refusal(f"The memory of {pid} may not be read."))
        events += sampler.tick([tracked(puppet, pid)], {})
    assert len(events) == external_sampler.MOST_REPORTED
    sampler.close()


def test_the_first_rank_is_sampled_often_and_some_others_now_and_then(
    puppet: Puppet, samples: type[Samples]
) -> None:
    launcher, workers = tracked(puppet, 1), [tracked(puppet, 100 + n) for n in range(20)]
    ranks = [tracked(puppet, 10 + rank, rank) for rank in (1, 0)]
    sampler = external_sampler.ExternalSampler(FS, launcher.key)
    sampler.tick([launcher, *workers, *ranks], {})
    assert len(samples.watched) == 1 + external_sampler.MOST_OTHERS
    assert list(samples.watched)[:3] == [ranks[1].key, ranks[0].key, launcher.key]
    assert samples.watched[ranks[1].key] == external_sampler.HZ
    assert samples.watched[ranks[0].key] == external_sampler.MOST_OF_RANK
    assert samples.watched[launcher.key] == external_sampler.OTHERS_HZ


def test_a_launcher_leaves_its_place_to_who_makes_the_steps(
    puppet: Puppet, samples: type[Samples]
) -> None:
    launcher, worker = tracked(puppet, 1), tracked(puppet, 10)
    sampler = external_sampler.ExternalSampler(FS, launcher.key)
    sampler.tick([launcher, worker], {})
    assert list(samples.watched) == [launcher.key, worker.key]
    take(worker.agent_stats, steps(1.0, 3.0, 3.0))
    sampler.tick([launcher, worker], {})
    assert samples.watched == {
        worker.key: external_sampler.HZ,
        launcher.key: external_sampler.OTHERS_HZ,
    }


def test_the_part_that_computes_is_sampled_often_and_the_one_that_was_named_seldom(
    puppet: Puppet, samples: type[Samples]
) -> None:
    front, engine, worker = (tracked(puppet, pid) for pid in (1, 10, 20))
    for each, title in ((engine, "sglang::detokenizer"), (worker, "sglang::scheduler_TP0")):
        each.identity = replace(each.identity, arguments=(title,))
    sampler = external_sampler.ExternalSampler(FS, front.key)
    sampler.tick([front, engine, worker], {})
    assert next(iter(samples.watched)) == worker.key
    assert samples.watched == {
        worker.key: external_sampler.HZ,
        engine.key: external_sampler.OTHERS_HZ,
        front.key: external_sampler.OTHERS_HZ,
    }


def test_ranks_share_their_samples_and_their_loaders_workers_get_none(
    puppet: Puppet, samples: type[Samples]
) -> None:
    ranks = [tracked(puppet, 10 + rank, rank) for rank in range(8)]
    workers = [tracked(puppet, 30 + rank, rank) for rank in range(8)]
    sampler = external_sampler.ExternalSampler(FS)
    sampler.tick([*ranks, *workers], {})
    shared = external_sampler.RANKS_HZ / 7
    assert samples.watched[ranks[0].key] == external_sampler.HZ
    assert {samples.watched[each.key] for each in ranks[1:]} == {shared}
    assert {samples.watched[each.key] for each in workers} == {external_sampler.OTHERS_HZ}


def test_processes_that_may_end_at_once_are_kept_together(
    puppet: Puppet, samples: type[Samples]
) -> None:
    job = tracked(puppet, 5)
    young = [replace(tracked(puppet, 20 + n), is_young=True) for n in range(4)]
    sampler = external_sampler.ExternalSampler(FS)
    sampler.tick(young, {})
    assert not samples.watched
    sampler.tick([*young, job], {})
    assert len(samples.watched) == 1 + external_sampler.MOST_YOUNG
    assert samples.watched[young[0].key] == external_sampler.YOUNG_HZ
    for each in young[:2]:
        samples.seen[each.key] = SEEN, 0
    sampler.tick([job], {})
    (event,) = sampler.close()
    assert event.data is not None
    assert (event.kind, event.key, event.data["samples"]) == ("short_lived_stacks", job.key, 8)


def test_what_was_seen_of_a_process_is_kept_when_it_ends(
    puppet: Puppet, samples: type[Samples]
) -> None:
    seen = tracked(puppet, 5)
    sampler = external_sampler.ExternalSampler(FS)
    sampler.tick([seen], {})
    samples.seen[seen.key] = SEEN, 0
    (event,) = sampler.tick([], {})
    assert event.data is not None
    assert (event.kind, event.data["samples"]) == ("stacks", 4)

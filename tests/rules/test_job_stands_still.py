"""The rule job_stands_still."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, judge, names, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_WHILE_S
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.runs.stacks import Chain, CodeLine
from whyidle.monitor.signals.standstill import Collective, Stand, Standstill, Stopped
from whyidle.monitor.signals.window import Window

NAME = "job_stands_still"
FIXES = {
    "pytorch": ("", "faulthandler.cancel_dump_traceback_later()"),
    "jax": ("", "faulthandler.cancel_dump_traceback_later()"),
}
SITE = "/venv/lib/python3.11/site-packages"
LIB = "/usr/lib/python3.11"
# As measured of a job whose lock nobody releases.
STILL: dict[Metric, float] = {
    m.JOB_CPU: 0.004,
    m.JOB_AGENT_CPU: 0.002,
    m.JOB_DISK_READ: 0.0,
    m.JOB_DISK_WRITE: 0.0,
    m.JOB_STEPS: 0.0,
}
# An H100 as its counters say of a kernel that waits for other GPUs, and of one that has nothing.
POLLING: dict[Metric, float] = {
    m.GPU_UTILISATION: 1.0,
    m.GPU_MEMORY_BANDWIDTH: 0.0,
    m.GPU_POWER: 130.0,
    m.GPU_POWER_LIMIT: 700.0,
}
IDLE = POLLING | {m.GPU_UTILISATION: 0.0, m.GPU_POWER: 72.0}
TRAINING = POLLING | {m.GPU_MEMORY_BANDWIDTH: 0.4, m.GPU_POWER: 520.0}

LINE = CodeLine("/job/train.py", 30, "train")
LOCK = Chain((LINE,), CodeLine(f"{LIB}/threading.py", 320, "wait"))
BARRIER = Chain((LINE,), CodeLine(f"{SITE}/torch/distributed/distributed_c10d.py", 4600, "barrier"))
ACCEPT = Chain(
    (CodeLine("/job/serve.py", 9, "serve"),), CodeLine(f"{LIB}/socket.py", 294, "accept")
)
SOCKET = Chain((LINE,), CodeLine(f"{LIB}/socket.py", 706, "readinto"))
LOADER = Chain((LINE,), CodeLine(f"{SITE}/torch/utils/data/dataloader.py", 1200, "_try_get_data"))
SAVE = Chain(
    (CodeLine("/job/train.py", 50, "save_checkpoint"),),
    CodeLine(f"{SITE}/torch/serialization.py", 1, "save"),
)


def of(
    *chains: Chain,
    seconds: float = 300.0,
    means: Mapping[Metric, float] = STILL,
    facts: Mapping[str, Any] | None = None,
    waits: float | None = 1.0,
    for_lock: float = 0.0,
    **more: Any,
) -> Window:
    """Return a window at whose end the ranks stand at these, after steps of half a second."""
    stands = tuple(
        Stand(100 + n, n if len(chains) > 1 else None, chain, seconds, waits, for_lock)
        for n, chain in enumerate(chains)
    )
    still = Standstill(stands, seconds, means=means, **{"stepped": True, "step_s": 0.5, **more})
    known = {"torch": {"backend": "cpu", "world_size": max(1, len(chains)), **(facts or {})}}
    samples = stacks((chains[0].frames[0], (), 200), waited=1)
    return window(standstill=still, facts=known, looks=200, stacks=samples, inside=True)


def test_a_lock_that_nobody_releases() -> None:
    finding = found(NAME, of(LOCK))
    assert finding.severity is Severity.HIGH
    assert finding.gain is None
    assert finding.title == "Stuck: the job waits for a lock, a queue or another thread"
    assert [(p.file, p.line) for p in finding.where] == [("/job/train.py", 30)]


RING = Chain(
    (), CodeLine(f"{SITE}/vllm/distributed/device_communicators/shm_broadcast.py", 5, "spin")
)


@pytest.mark.parametrize("chain", [RING, LOCK, SOCKET])
def test_a_part_of_a_job_that_is_given_no_work_is_not_stuck(chain: Chain) -> None:
    still = replace(of(LOCK).job.standstill, stepped=False, stands=(Stand(1, None, chain, 300.0),))
    job = replace(of(LOCK).job, standstill=still, role="worker", steps_by=None)
    assert judge(NAME, replace(of(LOCK), job=job)) is None
    alone = replace(job, role=None)
    assert judge(NAME, replace(of(LOCK), job=alone)) is not None


def test_who_may_hold_the_lock_is_named() -> None:
    still = of(LOCK)
    threads = stacks((CodeLine("/job/train.py", 12, "rotate"), (), 90))
    finding = found(NAME, replace(still, job=replace(still.job, threads=threads)))
    said = {each.name: each.value for each in finding.evidence}
    assert said["another thread was at"] == "train.py:12 in rotate"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("with print_lock:", "waits for a lock"),
        ("batch = batches.get()", "waits for a lock, a queue"),
        ("data = os.read(pipe, 1 << 20)", "waits for data from outside"),
        ("answer = input('> ')", "waits for keyboard input"),
        ("time.sleep(1)", "sleeps"),
        ("torch.distributed.all_reduce(total)", "waits for other processes"),
        ("multihost_utils.sync_global_devices('saved')", "waits for other processes"),
        ("loss.item()", "waits for the device"),
        ("mystery()", "waits"),
    ],
)
def test_what_it_waits_for_is_in_the_line(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "train.py"
    body = "\n        pass" if text.endswith(":") else ""
    file.write_text(f"import os, time, torch\ndef train(loss):\n    {text}{body}\n")
    finding = found(NAME, of(Chain((CodeLine(str(file), 3, "train"),))))
    assert finding.title is not None
    assert f"Stuck: the job {what}" in finding.title


def test_a_gradient_that_other_ranks_do_not_bring(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def train(loss):\n    loss.backward()\n")
    at = Chain((CodeLine(str(file), 2, "train"),))
    assert "the device" in str(found(NAME, of(at)).title)
    assert "other processes" in str(found(NAME, of(at, at)).title)


def test_the_rank_that_is_elsewhere_is_the_cause() -> None:
    elsewhere = Chain((CodeLine("/job/data.py", 7, "wait_for_shard"),), LOCK.leaf)
    finding = found(NAME, of(BARRIER, elsewhere))
    assert finding.severity is Severity.HIGH
    assert names(finding.where) == ["wait_for_shard", "train"]
    assert "a lock" in str(finding.title)
    said = {each.name: each.value for each in finding.evidence}
    assert said["ranks that were looked at"] == "2 of 2"
    assert str(said["rank 0"]).endswith("of the job at train.py:30 in train")


def test_a_rank_whose_others_nobody_sees_may_wait_for_their_validation() -> None:
    alone = of(BARRIER, facts={"world_size": 8})
    assert found(NAME, alone).severity is Severity.LOW
    longer = of(BARRIER, facts={"world_size": 8}, seconds=900.0)
    assert found(NAME, longer).severity is Severity.MEDIUM


def test_a_gpu_that_only_polls_for_others_does_nothing() -> None:
    gpu = {"backend": "cuda"}
    # NCCL's kernel, and the thread that waits for it, take all of a GPU and of a core.
    polls = STILL | {m.JOB_CPU: 1.0}
    window_ = of(BARRIER, BARRIER, means=polls, gpus=(POLLING, POLLING), facts=gpu, waits=0.0)
    assert found(NAME, window_).severity is Severity.HIGH
    assert judge(NAME, of(BARRIER, BARRIER, gpus=(POLLING, TRAINING), facts=gpu)) is None


def test_workers_of_a_loader_that_stand_are_named_too() -> None:
    helper = Stand(200, None, Chain((CodeLine("/job/data.py", 70, "fetch"),)), 290.0, 1.0)
    finding = found(NAME, of(LOADER, helpers=(helper,)))
    assert finding.title == "Stuck: a loader worker waits"
    assert names(finding.where) == ["fetch", "train"]
    assert "its data loader" in str(found(NAME, of(LOADER)).title)


@pytest.mark.parametrize(
    "means",
    [
        # It compiles, in a thread or process of its own; it computes a step of minutes on a CPU.
        STILL | {m.JOB_CPU: 0.95},
        STILL | {m.JOB_COMPILE: 0.9},
        # It writes a checkpoint, or reads one.
        STILL | {m.JOB_DISK_WRITE: 40e6},
        STILL | {m.JOB_DISK_READ: 2e6},
    ],
)
def test_a_job_in_which_anything_works_does_not_stand(means: Mapping[Metric, float]) -> None:
    assert judge(NAME, of(LOCK, means=means)) is None


def test_a_long_step_on_a_gpu_is_no_standstill() -> None:
    waits = Chain((LINE,), CodeLine(f"{SITE}/jax/_src/array.py", 600, "block_until_ready"))
    assert judge(NAME, of(waits, gpus=(TRAINING,), facts={"backend": "cuda"})) is None
    assert found(NAME, of(waits, gpus=(IDLE,), facts={"backend": "cuda"})).severity is Severity.HIGH


def test_a_minute_is_not_long_for_steps_of_half_a_minute() -> None:
    assert found(NAME, of(LOCK, step_s=60.0)).severity is Severity.LOW
    assert judge(NAME, of(LOCK, seconds=45.0)) is None


def test_a_lock_of_pythons_that_another_thread_keeps() -> None:
    held = of(LOCK, for_lock=1.0)
    holders = stacks((CodeLine("/job/report.py", 8, "report"), (), 90))
    finding = found(NAME, replace(held, job=replace(held.job, holders=holders)))
    assert names(finding.where) == ["report", "train"]
    assert "Python's lock" in str(finding.title)
    assert finding.severity is Severity.HIGH
    # It computes meanwhile: that is no standstill.
    assert judge(NAME, of(LOCK, for_lock=1.0, means=STILL | {m.JOB_CPU: 1.0})) is None


def test_a_thread_that_runs_all_the_time_waits_for_nothing() -> None:
    assert judge(NAME, of(LOCK, waits=0.1)) is None


@pytest.mark.parametrize("chain", [SOCKET, LOCK])
def test_a_server_without_requests_is_no_more_than_low(chain: Chain) -> None:
    serving = of(chain, stepped=False, step_s=None, seconds=7200.0)
    assert found(NAME, serving).severity is Severity.LOW
    # It has answered some: turns of its loop are no steps.
    before = of(chain, seconds=7200.0)
    turned = replace(before, job=replace(before.job, steps_by="loop"))
    expected = Severity.LOW if chain is LOCK else Severity.HIGH
    assert found(NAME, turned).severity is expected
    assert found(NAME, before).severity is Severity.HIGH


def test_who_waits_for_connections_does_not_stand_still_unless_it_trained() -> None:
    serving = of(ACCEPT, stepped=False, step_s=None, seconds=7200.0)
    assert judge(NAME, serving) is None
    assert found(NAME, of(ACCEPT, seconds=500.0)).severity is Severity.LOW


def test_a_job_that_never_makes_its_first_step() -> None:
    waits = of(BARRIER, BARRIER, stepped=False, step_s=None, seconds=700.0)
    assert found(NAME, waits).severity is Severity.MEDIUM


@pytest.mark.parametrize("chain", [SAVE, LOCK])
def test_what_saves_takes_its_time(chain: Chain) -> None:
    severity = found(NAME, of(chain)).severity
    assert severity is (Severity.LOW if chain is SAVE else Severity.HIGH)


def test_a_job_that_nobody_saw_train_stands_in_a_loop_that_trains(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def f(q):\n    while True:\n        loss(q.get()).backward()\n")
    at = Chain((CodeLine(str(file), 3, "f"),), LOCK.leaf)
    unseen: dict[str, Any] = {"stepped": False, "step_s": None}
    assert found(NAME, of(at, seconds=130.0, **unseen)).severity is Severity.MEDIUM
    assert found(NAME, of(at, seconds=700.0, **unseen)).severity is Severity.HIGH
    assert found(NAME, of(LOCK, seconds=130.0, **unseen)).severity is Severity.LOW
    # JAX's own, a function away.
    file = tmp_path / "jax_train.py"
    file.write_text("def step(p, x):\n    return jax.grad(f)(p)\nfor x in q:\n    p = step(p, x)\n")
    at = Chain((CodeLine(str(file), 3, "<module>"),), LOCK.leaf)
    assert found(NAME, of(at, seconds=130.0, **unseen)).severity is Severity.MEDIUM


def test_who_sleeps_while_the_others_wait_does_not_do_so_on_purpose(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import time\ntime.sleep(1)\n")
    asleep = Chain((CodeLine(str(file), 2, "<module>"),))
    assert found(NAME, of(asleep)).severity is Severity.LOW
    finding = found(NAME, of(BARRIER, asleep))
    assert finding.title == "Stuck: rank 1 sleeps"
    assert finding.severity is Severity.HIGH


def test_what_may_be_on_its_way_over_the_network_is_low() -> None:
    assert found(NAME, of(SOCKET, means=STILL | {m.JOB_NET_RX: 8e6})).severity is Severity.LOW
    assert found(NAME, of(SOCKET)).severity is Severity.HIGH


def test_without_counters_of_its_gpu_nothing_is_said_of_a_job_without_steps() -> None:
    unknown = of(LOCK, stepped=False, step_s=None, facts={"backend": "cuda"})
    assert cannot_judge(NAME, unknown)
    divided = {m.GPU_MEMORY_USED: 4e9}
    mig = of(LOCK, stepped=False, step_s=None, gpus=(divided,), facts={"backend": "cuda"})
    assert cannot_judge(NAME, mig)


def test_a_job_that_moves_is_silent_and_one_that_nobody_sampled_is_not_judged() -> None:
    assert judge(NAME, window(looks=300)) is None
    assert cannot_judge(NAME, window())


def test_a_job_that_stands_lacks_no_cores() -> None:
    means = {
        m.JOB_MAIN_THREAD_WAIT: 0.3, m.HOST_CPU: 1.0, m.HOST_CORES: 8.0, m.JOB_CPU: 0.1,
        m.PROCESS_CPU: 0.1, m.JOB_MAIN_THREAD: 0.1,
    }  # fmt: skip
    window_ = of(LOCK)
    crowded = replace(window_, job=replace(window_.job, means=means))
    assert [each.rule.id for each in diagnose(crowded, only=("cpu_starved",)).findings]
    found_ = diagnose(crowded, only=("cpu_starved", NAME))
    assert [each.rule.id for each in found_.findings] == [NAME]


def test_the_line_itself_is_no_finding_beside_it() -> None:
    window_ = of(LOCK)
    samples = stacks((CodeLine(f"{LIB}/json/x.py", 3, "dumps"), (LINE,), 200))
    job = replace(window_.job, stacks=samples)
    found_ = diagnose(replace(window_, job=job))
    assert [each.rule.id for each in found_.findings] == [NAME]
    assert found_.findings[0].also_seen == ("host_code",)


def _in(stand: Stand, number: int, name: str = "gloo:all_reduce") -> Stand:
    return replace(stand, collective=Collective(number, name, ((1024, 2),), ("Float",), "all"))


def test_the_rank_that_has_begun_fewer_collectives_is_who_is_missing() -> None:
    still = of(BARRIER, BARRIER, BARRIER)
    before = still.job.standstill
    assert before is not None
    one, two, three = before.stands
    stands = (_in(one, 42), _in(two, 41), _in(three, 42))
    finding = found(
        NAME, replace(still, job=replace(still.job, standstill=replace(before, stands=stands)))
    )
    assert finding.title is not None
    assert "rank 1 has started nothing after gloo:all_reduce #41" in finding.title
    said = {each.name: each.value for each in finding.evidence}
    assert said["rank 2 started last"] == "gloo:all_reduce #42 of Float 1024x2"
    alike = tuple(_in(each, 42) for each in before.stands)
    finding = found(
        NAME, replace(still, job=replace(still.job, standstill=replace(before, stands=alike)))
    )
    assert finding.title == "Stuck: rank 0 waits for other processes of the job"


@pytest.mark.parametrize("seconds", [9.0, 30.0, 5000.0])
def test_a_job_that_is_stopped_says_so_and_what_to_type(seconds: float) -> None:
    stop = Stopped((7, 8), 1_700_000_000_000, seconds)
    stopped = window(stopped=stop, pid=7, looks=100)
    if seconds < A_WHILE_S:
        assert judge(NAME, stopped) is None
        return
    finding = found(NAME, stopped)
    assert finding.severity is Severity.HIGH
    assert str(finding.title).startswith("The job is stopped")
    assert finding.fixes is not None
    assert "kill -CONT 7 8" in finding.fixes["pytorch"].text
    said = {each.name: each.value for each in finding.evidence}
    assert said["stopped for"] == seconds
    assert "stopped since" in said
    early = replace(stopped, job=replace(stopped.job, stopped=replace(stop, seen=False)))
    assert "stopped before" in {each.name for each in found(NAME, early).evidence}


def test_a_worker_that_is_stopped_is_named() -> None:
    finding = found(NAME, window(stopped=Stopped((9,), 0, 60.0), pid=7, looks=100))
    assert str(finding.title).startswith("Process 9 of the job is stopped")


def test_what_a_stopped_job_seems_to_lack_is_no_finding_beside_it() -> None:
    means = {
        m.JOB_MAIN_THREAD_WAIT: 0.3, m.HOST_CPU: 1.0, m.HOST_CORES: 8.0, m.JOB_CPU: 0.1,
        m.PROCESS_CPU: 0.1, m.JOB_MAIN_THREAD: 0.1,
    }  # fmt: skip
    stopped = window(stopped=Stopped((7,), 0, 60.0), pid=7, means=means)
    assert [each.rule.id for each in diagnose(stopped).findings] == [NAME]

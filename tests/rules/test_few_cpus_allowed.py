"""The rule few_cpus_allowed."""

from __future__ import annotations

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import diagnose

NAME = "few_cpus_allowed"
_AFTER = "assert os.sched_getaffinity(0)"
FIXES = {"pytorch": ("import os", _AFTER), "jax": ("import os", _AFTER)}
# Four loader workers and the main thread on one core of a Slurm task, of 64.
SLURM: dict[Metric, float] = {
    m.HOST_CORES: 64.0, m.HOST_CPU: 0.1, m.JOB_CORES_ALLOWED: 1.0, m.JOB_CORES_BUSY: 1.0,
    m.JOB_CPU: 0.98, m.JOB_WAITING_THREADS: 3.4, m.JOB_MAIN_THREAD: 0.2,
    m.JOB_MAIN_THREAD_WAIT: 0.15, m.JOB_LOADER_WAIT: 0.7,
}  # fmt: skip


def test_workers_on_the_one_core_of_a_slurm_task() -> None:
    finding = found(NAME, window(means=SLURM, pid=4711))
    assert finding.title == "The job may use 1 of 64 cores, and they are full"
    said = {each.name: each.value for each in finding.evidence}
    assert (said["cores that it may use"], said["cores of the machine"]) == (1, 64)
    assert said["threads that want a core"] == pytest.approx(4.38)
    assert finding.gain is not None
    # It waits for its loader, two fifths of which come back; all could, but for the work itself.
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.28, 1 - 0.98 / 4.38))
    assert finding.fixes is not None
    text = finding.fixes["pytorch"].text
    assert "--cpus-per-task=4" in text
    assert "taskset -apc 0-63 4711" in text


def test_it_explains_what_waits_for_it() -> None:
    facts = {"torch": {"backend": "cpu", "loaders": [{"workers": 4}]}}
    found = diagnose(window(means=SLURM, facts=facts), ("cpu_starved", "input_starved", NAME))
    assert [(each.rule.id, each.also_seen) for each in found.findings] == [
        (NAME, ("cpu_starved", "input_starved"))
    ]


def test_two_jobs_that_were_bound_to_the_same_core() -> None:
    means = SLURM | {m.JOB_CPU: 0.5, m.JOB_WAITING_THREADS: 0.5, m.JOB_MAIN_THREAD_WAIT: 0.5}
    finding = found(NAME, window(means=means))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.5)


def test_ranks_that_are_bound_to_a_core_each() -> None:
    means = SLURM | {
        m.JOB_CORES_ALLOWED: 8.0, m.JOB_CPU: 7.8, m.JOB_WAITING_THREADS: 20.0, m.HOST_CPU: 0.15,
    }  # fmt: skip
    assert found(NAME, window(means=means)).title == (
        "The job may use 8 of 64 cores, and they are full"
    )


def test_a_gpu_that_computes_meanwhile_loses_nothing() -> None:
    trace = answer({Slice.COMPUTE: 0.97, Slice.IDLE_DISPATCH: 0.03}, kind="gpu")
    finding = found(NAME, window(trace, means=SLURM))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.03)


def test_one_thread_that_has_its_core_may_need_no_more() -> None:
    # Threads that sleep want none.
    alone = SLURM | {m.JOB_WAITING_THREADS: 0.05, m.JOB_CPU: 0.97, m.JOB_THREADS: 200.0}
    finding = found(NAME, window(means=alone))
    assert (finding.gain, finding.severity) == (None, Severity.INFO)


@pytest.mark.parametrize(
    "healthy",
    [
        # Others have the core now and then.
        {m.JOB_WAITING_THREADS: 0.05, m.JOB_CPU: 0.6},
        # A node's half is enough for what runs there.
        {m.JOB_CORES_ALLOWED: 32.0, m.JOB_CORES_BUSY: 0.2, m.JOB_CPU: 6.0},
        # All cores are allowed.
        {m.JOB_CORES_ALLOWED: 64.0},
        # The others are taken as well: that is no matter of the mask.
        {m.HOST_CPU: 1.0},
        # A tighter limit is what stops it.
        {m.JOB_CPU_LIMIT: 0.5},
    ],
)
def test_a_mask_that_costs_nothing(healthy: dict[Metric, float]) -> None:
    assert judge(NAME, window(means=SLURM | healthy)) is None


def test_a_pool_that_no_core_elsewhere_has_room_for_is_another_fault() -> None:
    # Eight threads of one process, as measured on one of two cores, took as long on both.
    pool = {
        m.HOST_CORES: 2.0, m.HOST_CPU: 0.52, m.JOB_CORES_ALLOWED: 1.0, m.JOB_CORES_BUSY: 1.0,
        m.JOB_CPU: 1.0, m.PROCESS_CPU: 1.0, m.JOB_MAIN_THREAD: 0.36, m.JOB_MAIN_THREAD_WAIT: 0.64,
        m.JOB_WAITING_THREADS: 4.4,
    }  # fmt: skip
    found = diagnose(window(means=pool), ("cpu_starved", NAME))
    assert [each.rule.id for each in found.findings] == ["cpu_starved"]
    # A machine with room for them is a matter of the mask.
    wide = pool | {m.HOST_CORES: 64.0, m.HOST_CPU: 1.5 / 64}
    found = diagnose(window(means=wide), ("cpu_starved", NAME))
    assert [each.rule.id for each in found.findings] == [NAME]


@pytest.mark.parametrize("missing", [m.JOB_CORES_ALLOWED, m.JOB_WAITING_THREADS, m.HOST_CPU])
def test_what_was_not_measured_is_not_judged(missing: Metric) -> None:
    means = {metric: value for metric, value in SLURM.items() if metric is not missing}
    if missing is m.HOST_CPU:
        assert judge(NAME, window(means=means)) is None
    else:
        assert cannot_judge(NAME, window(means=means))
    assert cannot_judge(NAME, traced("h100_qwen05b"))

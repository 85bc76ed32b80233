"""The rule cpu_starved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Found, Severity, SourceLine
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples

NAME = "cpu_starved"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset
dataset, as_before = TensorDataset(torch.zeros(256, 4)), {"batch_size": 64}
""",
        "assert 1 <= loader.num_workers <= cores and torch.get_num_threads() <= cores",
    ),
    "jax": (
        """
import concurrent.futures
import os
""",
        "assert pool.submit(int, '3').result() == 3\npool.shutdown()",
    ),
}
CALM = {
    m.JOB_MAIN_THREAD_WAIT: 0.01,
    m.JOB_THROTTLED: 0.0,
    m.HOST_CORES: 8.0,
    m.JOB_CPU: 2.0,
    m.PROCESS_CPU: 1.0,
    m.JOB_MAIN_THREAD: 0.6,
    m.HOST_CPU: 0.3,
}
CROWD: dict[Metric, float] = {
    m.JOB_MAIN_THREAD_WAIT: 0.4,
    m.JOB_CPU: 7.5,
    m.JOB_WAITING_THREADS: 6.0,
    m.HOST_CPU: 0.95,
}
NEIGHBOURS: dict[Metric, float] = {**CALM, **CROWD, m.JOB_CPU: 1.0, m.JOB_WAITING_THREADS: 2.0}
LIMITED: dict[Metric, float] = {
    m.JOB_THROTTLED: 0.6,
    m.JOB_MAIN_THREAD_WAIT: 0.3,
    m.JOB_CPU_LIMIT: 2.0,
}


def test_a_container_that_is_stopped_by_its_limit() -> None:
    finding = found(NAME, window(means={**CALM, **LIMITED}))
    assert finding.title == "The CPU limit of the container stops the job"
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.15, 0.375))
    said = {each.name: each.value for each in finding.evidence}
    assert said["cores"] == 2.0
    assert said["periods cut by the CPU limit"] == 0.6


def test_more_workers_than_cores() -> None:
    facts = {"torch": {"loaders": [{"workers": 16}]}}
    finding = found(NAME, window(means={**CALM, **CROWD}, facts=facts))
    assert finding.title == "The job runs more threads than it has cores"
    said = {each.name: each.value for each in finding.evidence}
    assert (said["loader workers"], said["cores"]) == (16, 8.0)


def test_what_threads_of_its_own_keep_waiting_for_comes_back_too() -> None:
    finding = found(NAME, window(means={**CALM, **CROWD}))
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.2, 0.5))


def test_a_device_that_computes_meanwhile_loses_nothing() -> None:
    trace = answer({Slice.COMPUTE: 0.9, Slice.IDLE_DISPATCH: 0.1}, kind="gpu")
    finding = found(NAME, window(trace, means={**CALM, **CROWD}))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.1)
    assert finding.slice is Slice.IDLE_DISPATCH


@pytest.mark.parametrize(("runs", "is_lost"), [(0.1, False), (0.55, True)])
def test_a_main_thread_that_sleeps_beside_others_catches_up(runs: float, is_lost: bool) -> None:
    trace = answer({Slice.COMPUTE: 0.9, Slice.IDLE_DISPATCH: 0.1}, fmt="xplane")
    jax = {"jax": {"backend": "cpu"}}
    means = {**CALM, **CROWD, m.JOB_MAIN_THREAD: runs}
    alone = window(trace, means=means, facts=jax)
    if is_lost:
        assert found(NAME, alone).gain is not None
    else:
        # Of nobody else it is known that it waits for this.
        assert judge(NAME, alone) is None
    beside = window(trace, means={**means, m.JOB_BUSY_PROCESSES: 3.0}, facts=jax)
    finding = found(NAME, beside)
    assert (finding.severity is Severity.LOW) != is_lost


def test_a_limit_that_stops_only_the_workers() -> None:
    finding = found(NAME, window(means={**CALM, m.JOB_THROTTLED: 0.3}))
    assert finding.gain is None
    assert finding.severity is Severity.LOW


def test_neighbours_are_reported_without_a_saving() -> None:
    finding = found(NAME, window(means=NEIGHBOURS))
    assert finding.title == "Other programs take the cores that the job waits for"
    assert finding.gain is None
    assert finding.severity is Severity.MEDIUM


# 16 threads on 2 cores, as measured: alone, and beside a compiler.
@pytest.mark.parametrize(
    ("wait", "own", "waiting", "busy", "title"),
    [
        (0.35, 1.25, 4.0, 0.70, "The job runs more threads than it has cores"),
        (0.41, 1.03, 0.9, 0.87, "Other programs take the cores that the job waits for"),
        (0.08, 1.03, 0.2, 0.87, None),
        (0.35, 0.60, 0.5, 0.35, None),
    ],
)
def test_a_long_wait_on_a_machine_that_is_hardly_full(
    wait: float, own: float, waiting: float, busy: float, title: str | None
) -> None:
    means = {
        **CALM, m.JOB_MAIN_THREAD_WAIT: wait, m.JOB_CPU: own, m.JOB_WAITING_THREADS: waiting,
        m.HOST_CPU: busy, m.HOST_CORES: 2.0,
    }  # fmt: skip
    result = judge(NAME, window(means=means))
    assert (result.title if isinstance(result, Found) else None) == title


def test_where_cores_are_free_nobody_else_is_blamed() -> None:
    means = {**CALM, m.JOB_MAIN_THREAD_WAIT: 0.6, m.HOST_CPU: 0.55, m.HOST_CORES: 64.0}
    assert judge(NAME, window(means=means)) is None


@pytest.mark.parametrize("means", [CALM, {**CALM, m.JOB_MAIN_THREAD_WAIT: 0.2}])
def test_a_job_with_enough_cores(means: dict[Metric, float]) -> None:
    assert judge(NAME, window(means=means)) is None


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, traced("h100_qwen05b"))


def test_neighbours_are_no_matter_of_threads() -> None:
    finding = found(NAME, window(means=NEIGHBOURS))
    assert finding.fixes is not None
    assert all("taskset" in fix.text and not fix.code for fix in finding.fixes.values())


def test_workers_are_spoken_of_only_where_there_are_some() -> None:
    without = found(NAME, window(means={**CALM, **LIMITED}))
    assert without.fixes is not None
    assert not any("num_workers" in fix.code for fix in without.fixes.values())
    facts = {"torch": {"loaders": [{"workers": 4}]}}
    fixes = found(NAME, window(means={**CALM, **LIMITED}, facts=facts)).fixes
    assert fixes is not None
    assert "num_workers=1" in fixes["pytorch"].code


def test_workers_that_the_steps_wait_for_stay(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("for x in loader:\n    step(x)\n")
    facts = {"torch": {"loaders": [{"workers": 16}]}}
    inside = CodeLine("/lib/site-packages/torch/utils/data/dataloader.py", 9, "__next__")
    for waits in (0, 300):
        samples = StackSamples()
        samples.samples = 1000
        for number, count in ((1, waits), (2, 1000 - waits)):
            line = CodeLine(str(script), number, "<module>")
            chain = Chain((line,), inside, inside) if number == 1 else Chain((line,), line)
            samples.count(chain, count, count, count if number == 1 else 0)
        job = window(means={**CALM, **CROWD}, facts=facts, stacks=samples, inside=True)
        fixes = found(NAME, job).fixes
        assert fixes is not None
        assert ("num_workers=7" in fixes["pytorch"].text) == (not waits)


def test_the_line_to_type_has_the_jobs_own_numbers() -> None:
    limited = {**CALM, **LIMITED, m.JOB_WAITING_THREADS: 6.5}
    finding = found(NAME, window(means=limited))
    assert finding.fixes is not None
    # It runs 2 and waits for 6.5 more; the machine has no more than 8.
    assert "--cpus=8" in finding.fixes["pytorch"].text
    assert "OMP_NUM_THREADS=2" in finding.fixes["pytorch"].text
    said = {each.name: each.value for each in finding.evidence}
    assert said["threads that want a core"] == 8.5


def test_pools_of_several_processes() -> None:
    pools = {**CALM, **CROWD, m.JOB_WAITING_THREADS: 20.0, m.JOB_BUSY_PROCESSES: 4.0}
    finding = found(NAME, window(means=pools))
    assert finding.title == "4 processes of the job run more threads than it has cores"
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.2 * 0.4)
    assert finding.fixes is not None
    assert "OMP_NUM_THREADS=2" in finding.fixes["pytorch"].text
    assert finding.fixes["pytorch"].code == "torch.set_num_threads(2)"


def test_a_mask_whose_cores_others_take_counts_as_they_do() -> None:
    # Half of the machine is idle, and the one core of this job is not.
    pinned = {
        **CALM, m.JOB_MAIN_THREAD_WAIT: 0.5, m.JOB_CPU: 0.5, m.PROCESS_CPU: 0.5,
        m.HOST_CORES: 2.0, m.HOST_CPU: 0.5,
        m.JOB_CORES_ALLOWED: 1.0, m.JOB_CORES_BUSY: 1.0,
    }  # fmt: skip
    finding = found(NAME, window(means=pinned))
    assert finding.title == "Other programs take the cores that the job waits for"
    alone = pinned | {m.JOB_CORES_BUSY: 0.5, m.JOB_MAIN_THREAD_WAIT: 0.1}
    assert judge(NAME, window(means=alone)) is None


def test_a_wait_has_no_line() -> None:
    lines = (SourceLine("/me/train.py", 5, "train", 0.9),)
    assert found(NAME, window(means={**CALM, **LIMITED}, lines=lines)).where == ()


def test_neighbours_that_keep_other_threads_from_computing() -> None:
    cpu = {
        m.JOB_MAIN_THREAD_WAIT: 0.01, m.HOST_CORES: 2.0, m.HOST_CPU: 0.99, m.JOB_CPU: 0.9,
        m.PROCESS_CPU: 0.9, m.JOB_MAIN_THREAD: 0.1,
    }  # fmt: skip
    facts = {"jax": {"backend": "cpu"}}
    finding = found(NAME, window(means=cpu, facts=facts))
    assert finding.title == "Other programs take the cores that the job waits for"
    assert finding.severity is Severity.MEDIUM
    # Alone on full cores, beside an idle machine, or on a GPU nothing is taken from it: there the
    # main thread alone launches, and it had its core.
    for means, where in (
        (cpu | {m.JOB_CPU: 1.9, m.PROCESS_CPU: 1.9}, "cpu"),
        (cpu | {m.HOST_CPU: 0.6}, "cpu"),
        (cpu, "gpu"),
    ):
        assert judge(NAME, window(means=means, facts={"jax": {"backend": where}})) is None


ASKS = {
    "torch.set_num_threads(16)": True,
    'os.environ["OMP_NUM_THREADS"] = "24"': True,
    "loader = DataLoader(data, 64, num_workers=32)": True,
    "tf.config.threading.set_intra_op_parallelism_threads(count)": True,
    # Fewer than there are cores, by itself.
    "torch.set_num_threads(4)": False,
    "threads = 16": False,
}


@pytest.mark.parametrize(("text", "asks"), ASKS.items())
def test_the_line_that_asks_for_the_threads(text: str, asks: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import torch\n{text}\nstep()\n")
    lines = [SourceLine(str(script), 3, "<module>", 1.0)]
    means = {**CALM, **CROWD, m.JOB_WAITING_THREADS: 6.0}
    where = found(NAME, window(means=means, lines=lines)).where
    assert [place.line for place in where] == [2] * asks


def test_too_many_threads_beside_neighbours() -> None:
    # Two of eight cores are others', and 20 threads want the rest.
    means = {**CALM, **CROWD, m.JOB_CPU: 5.0, m.JOB_WAITING_THREADS: 15.0}
    finding = found(NAME, window(means=means))
    assert finding.title == "The job runs more threads than it has cores"
    few = found(NAME, window(means={**means, m.JOB_WAITING_THREADS: 3.0}))
    assert few.title == "Other programs take the cores that the job waits for"


# Of healthy programs on two cores: a policy with environments, one with a loader, and JAX.
@pytest.mark.parametrize(
    ("wait", "own", "waiting"), [(0.06, 1.88, 0.12), (0.16, 1.9, 0.3), (0.09, 1.98, 0.8)]
)
@pytest.mark.parametrize(
    "facts",
    [{"torch": {"num_threads": 2}}, {"torch": {"loaders": [{"workers": 2}]}}, {"jax": {}}],
)
def test_as_many_threads_as_cores_are_no_fault(
    wait: float, own: float, waiting: float, facts: dict[str, dict[str, object]]
) -> None:
    means = {
        m.JOB_MAIN_THREAD_WAIT: wait, m.JOB_CPU: own, m.JOB_WAITING_THREADS: waiting,
        m.HOST_CPU: 0.98, m.HOST_CORES: 2.0,
    }  # fmt: skip
    assert judge(NAME, window(means=means, facts=facts)) is None


FULL = {
    m.JOB_MAIN_THREAD_WAIT: 0.3, m.JOB_CPU: 1.9, m.JOB_WAITING_THREADS: 2.4,
    m.HOST_CPU: 0.99, m.HOST_CORES: 2.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "processes", "title", "text"),
    [
        # Each count as it is, and what would help instead.
        ({"num_threads": 8}, 1, "The job runs more threads", "OMP_NUM_THREADS=2"),
        ({"num_threads": 2}, 2, "2 processes of the job", "OMP_NUM_THREADS=1"),
        (
            {"num_threads": 2, "loaders": [{"workers": 4}]},
            1,
            "The job runs more threads",
            "Set num_workers=1.",
        ),
        ({"num_threads": 8, "loaders": [{"workers": 4}]}, 1, "The job runs more", "num_workers=1"),
        # Nothing that PyTorch could be told: it has no more than it should.
        ({"num_threads": 2}, 1, None, ""),
        ({"num_threads": 1}, 2, None, ""),
    ],
)
def test_nothing_is_advised_that_is_so_already(
    facts: dict[str, object], processes: int, title: str | None, text: str
) -> None:
    means = {**FULL, m.JOB_BUSY_PROCESSES: float(processes)}
    verdict = judge(NAME, window(means=means, facts={"torch": facts}))
    if title is None:
        assert verdict is None
        return
    assert isinstance(verdict, Found)
    assert str(verdict.title).startswith(title)
    assert text in (verdict.fixes or {})["pytorch"].text
    assert ("OMP" in (verdict.fixes or {})["pytorch"].text) == (
        "OMP" in text or facts["num_threads"] == 8
    )


def test_what_the_source_asks_for_counts_more_than_what_was_seen_first(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.set_num_threads(16)\nstep()\n")
    lines = [SourceLine(str(script), 3, "<module>", 1.0)]
    facts = {"torch": {"num_threads": 2}}
    assert [x.line for x in found(NAME, window(means=FULL, lines=lines, facts=facts)).where] == [2]
    assert judge(NAME, window(means=FULL, facts=facts)) is None


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_each_framework_has_its_own_words(framework: str) -> None:
    fixes = found(NAME, window(means=FULL, facts={framework: {}})).fixes
    assert fixes is not None
    assert "fewer threads" in fixes[framework].text  # type: ignore[index]
    assert "OMP_NUM_THREADS" not in fixes[framework].text  # type: ignore[index]

"""The rule memory_not_released."""

from __future__ import annotations

from dataclasses import replace

from tests.rules.device_memory import GB, gpu, torch
from tests.rules.test_job_stands_still import LOCK
from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.signals.recorded import GpuUser
from whyidle.monitor.signals.standstill import Stand, Standstill
from whyidle.monitor.signals.window import Window

NAME = "memory_not_released"
JOB = GpuUser(7, "train.py", is_ours=True, memory=30.0 * GB, sm_share=0.7)
NOTEBOOK = GpuUser(99, "ipykernel_launcher.py", is_ours=False, memory=20.0 * GB)
BUSY = replace(NOTEBOOK, sm_share=0.3)
WORKER = GpuUser(8, "train.py", is_ours=True, memory=5.0 * GB)


def test_a_notebook_that_somebody_has_forgotten() -> None:
    finding = found(NAME, torch(gpus=(gpu(JOB, NOTEBOOK, used=52.0 * GB),)))
    assert finding.severity is Severity.LOW
    assert finding.title == "Another idle program holds 20.0 GiB of GPU 0"
    assert finding.evidence[1].name == "process 99 (ipykernel_launcher.py)"
    assert finding.fixes is not None
    assert "ps -fp PID" in finding.fixes["pytorch"].text


def test_where_the_job_runs_out_of_memory_it_is_missing() -> None:
    assert found(NAME, torch(gpus=(gpu(JOB, NOTEBOOK),), failed=2)).severity is Severity.MEDIUM


def test_workers_of_the_job_with_a_context_of_their_own() -> None:
    finding = found(NAME, torch(gpus=(gpu(JOB, WORKER, replace(WORKER, pid=9)),)))
    assert finding.title == "2 idle processes of the job hold 10.0 GiB of GPU 0"
    assert "no tensor of the device in a dataset" in str(finding.fixes)


def test_memory_that_is_in_use_and_held_by_nobody() -> None:
    finding = found(NAME, torch(gpus=(gpu(JOB, GPU_MEMORY_UNCLAIMED=22.0 * GB),)))
    assert "22.0 GiB of GPU 0 are held by no live process" in str(finding.title)
    assert finding.severity is Severity.LOW


def test_of_several_the_most_counts() -> None:
    both = found(NAME, torch(gpus=(gpu(JOB, NOTEBOOK, GPU_MEMORY_UNCLAIMED=26.0 * GB),)))
    assert "no live process" in str(both.title)


def standing(seconds: float, utilisation: float = 0.0) -> Window:
    job = torch(gpus=(gpu(replace(JOB, sm_share=None), GPU_UTILISATION=utilisation),))
    still = Standstill((Stand(7, None, LOCK, seconds, 1.0),), seconds)
    return replace(job, job=replace(job.job, standstill=still))


def test_a_job_that_has_stopped_working() -> None:
    finding = found(NAME, standing(900.0))
    assert finding.title == "The job does no work and holds 30.0 GiB of GPU 0"
    said = {each.name: each.value for each in finding.evidence}
    assert said["of it only kept"] == 35 * GB
    assert judge(NAME, standing(120.0)) is None
    assert judge(NAME, standing(900.0, utilisation=0.4)) is None


def test_who_works_or_holds_little_is_no_fault() -> None:
    assert judge(NAME, torch(gpus=(gpu(JOB, BUSY),))) is None
    assert judge(NAME, torch(gpus=(gpu(JOB, replace(NOTEBOOK, memory=0.5 * GB)),))) is None
    assert judge(NAME, torch(gpus=(gpu(JOB, GPU_MEMORY_UNCLAIMED=0.6 * GB),))) is None


def test_a_gpu_that_the_job_does_not_use_is_none_of_its_business() -> None:
    assert judge(NAME, torch(gpus=(gpu(NOTEBOOK, GPU_UTILISATION=0.0),))) is None


def test_a_driver_that_has_no_shares_accuses_nobody() -> None:
    unknown = replace(JOB, sm_share=None)
    assert judge(NAME, torch(gpus=(gpu(unknown, NOTEBOOK),))) is None


def test_without_the_processes_of_a_gpu_it_is_not_judged() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, torch(gpus=(gpu(),)))
    short = torch(gpus=(gpu(JOB, NOTEBOOK),))
    assert cannot_judge(NAME, replace(short, job=replace(short.job, seconds=30.0)))
    assert m.GPU_MEMORY_UNCLAIMED.unit == "bytes"

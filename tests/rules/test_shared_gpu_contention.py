"""The rule shared_gpu_contention: windows by hand, and the tape of two processes on one GPU."""

from __future__ import annotations

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import GpuUser, SeenGpu

NAME = "shared_gpu_contention"
OURS = GpuUser(4711, "train.py", is_ours=True, memory=20e9, sm_share=0.31)


def gpu(*users: GpuUser, util: float = 1.0, owned: bool = True) -> SeenGpu:
    return SeenGpu("0", "NVIDIA H200", owned=owned, means={m.GPU_UTILISATION: util}, users=users)


def neighbour(share: float | None, pid: int = 4712) -> GpuUser:
    return GpuUser(pid, "serve.py", is_ours=False, memory=30e9, sm_share=share)


def test_a_neighbour_that_takes_two_thirds() -> None:
    finding = found(NAME, window(gpus=(gpu(OURS, neighbour(0.66)),)))
    assert finding.title == "GPU 0 is shared: other processes take 66% of its time"
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.0, 0.66))
    assert finding.severity is Severity.MEDIUM
    said = [(each.name, each.value) for each in finding.evidence]
    assert said[:3] == [("pid 4712 (serve.py)", 0.66), ("its memory", 30e9), ("this job", 0.31)]


def test_work_that_waits_for_it_in_a_trace_is_surely_lost() -> None:
    waits = {Slice.IDLE_QUEUE: {"launched, not started": 0.25}}
    trace = answer({Slice.COMPUTE: 0.6, Slice.IDLE_QUEUE: 0.3}, kind="gpu", details=waits)
    finding = found(NAME, window(trace, gpus=(gpu(OURS, neighbour(0.5)),)))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.25)
    assert finding.severity is None


def test_where_the_gpu_is_not_full_it_may_cost_nothing() -> None:
    finding = found(NAME, window(gpus=(gpu(OURS, neighbour(0.3), util=0.6),)))
    assert finding.severity is Severity.LOW


def test_several_neighbours_count_together() -> None:
    finding = found(NAME, window(gpus=(gpu(OURS, neighbour(0.1), neighbour(0.2, 9)),)))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.3)


@pytest.mark.parametrize(
    "alone",
    [
        gpu(OURS),
        # A notebook that holds memory and computes nothing; a desktop.
        gpu(OURS, neighbour(0.0)),
        gpu(OURS, neighbour(0.02)),
    ],
)
def test_a_gpu_of_ones_own(alone: SeenGpu) -> None:
    assert judge(NAME, window(gpus=(alone,))) is None


def test_another_jobs_gpu_is_not_our_concern() -> None:
    theirs = SeenGpu("1", None, owned=False, means={}, users=(neighbour(0.9),))
    assert judge(NAME, window(gpus=(gpu(OURS), theirs))) is None


def test_a_job_that_is_on_none_of_them_shares_none() -> None:
    # Until a job holds a GPU, all that it could use count as its own.
    assert cannot_judge(NAME, window(gpus=(gpu(neighbour(0.9)),)))


def test_nothing_known_of_who_uses_it() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(gpus=(gpu(),)))
    # In MIG mode the driver lists processes, and not what they take.
    assert cannot_judge(NAME, window(gpus=(gpu(OURS, neighbour(None)),)))

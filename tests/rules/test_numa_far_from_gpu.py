"""The rule numa_far_from_gpu."""

from __future__ import annotations

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import SeenGpu

NAME = "numa_far_from_gpu"
FIXES: dict[str, tuple[str, str]] = {}
GPU = SeenGpu("0", "H100", owned=True, means={}, info={"numa_node": 1})
FAR = {m.JOB_FAR_FROM_GPU: 1.0}


def test_a_process_that_stays_at_the_other_node() -> None:
    trace = answer({Slice.COMPUTE: 0.6, Slice.EXPOSED_COPY: 0.3}, kind="gpu")
    finding = found(NAME, window(trace, means=FAR, gpus=(GPU,)))
    assert finding.gain is not None
    # A sixth of the copies' time is left where they are as slow as they were ever reported.
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.0, 0.25))
    assert finding.severity is Severity.LOW
    said = {each.name: each.value for each in finding.evidence}
    assert said["node of GPU 0"] == 1
    assert finding.fixes is not None
    assert "numactl --cpunodebind=1 --membind=1" in finding.fixes["pytorch"].text


def test_without_a_trace_nothing_is_promised() -> None:
    assert found(NAME, window(means=FAR, gpus=(GPU,))).gain is None


def test_ranks_at_several_nodes_are_bound_each_for_itself() -> None:
    other = SeenGpu("1", "H100", owned=True, means={}, info={"numa_node": 0})
    finding = found(NAME, window(means=FAR, gpus=(GPU, other)))
    assert finding.fixes is not None
    assert "--numa-binding=node" in finding.fixes["pytorch"].text
    assert "cpunodebind" not in finding.fixes["pytorch"].text


def test_one_that_may_run_anywhere_or_on_no_gpu_is_not_far() -> None:
    assert judge(NAME, window(means={m.JOB_FAR_FROM_GPU: 0.6}, gpus=(GPU,))) is None
    cpu = {"jax": {"backend": "cpu"}}
    assert judge(NAME, window(means=FAR, gpus=(GPU,), facts=cpu)) is None


def test_a_machine_with_one_node_is_not_judged() -> None:
    assert cannot_judge(NAME, window(unknown={m.JOB_FAR_FROM_GPU: "one node"}))

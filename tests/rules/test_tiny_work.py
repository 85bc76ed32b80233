"""The rule tiny_work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, recorded, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "tiny_work"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import torch
from torch.utils.data import DataLoader, TensorDataset
dataset, as_before = TensorDataset(torch.zeros(1100, 4)), {"drop_last": True}
""",
        "assert len(loader) == 2",
    ),
    "jax": (
        """
import jax
import jax.numpy as jnp
params, batch_of_512 = jnp.ones(3), jnp.ones((512, 3))
def loss(params, sample): return (params * sample).sum()
""",
        "assert losses.shape == (512,)",
    ),
}


def on_cpu(step_ms: float, batch: int | None) -> Window:
    trace = answer({Slice.COMPUTE: 1.0}, calls={"aten::add": 100})
    trace["devices"][0]["kernels"] = 1000
    means = {m.JOB_STEPS: 10.0, m.JOB_MAIN_THREAD: step_ms / 100, m.PROCESS_OPTIMIZER_TIME: 0.2}
    return window(trace, means=means, facts={"torch": {"backend": "cpu", "batch_size": batch}})


def on_gpu(short_ns: int, used: float | None) -> Window:
    short = {"below_ns": 10_000, "count": 900, "total_ns": short_ns}
    trace: dict[str, Any] = answer(
        {Slice.COMPUTE: 0.3, Slice.IDLE_DISPATCH: 0.7},
        kind="gpu",
        kernels={"count": 1000, "total_ns": 1_000_000, "short": short},
    )
    means = {} if used is None else {m.GPU_MEMORY_USED: used, m.GPU_MEMORY_TOTAL: 1.0}
    return window(trace, gpus=(SeenGpu("0", "GPU", owned=True, means=means),))


@pytest.mark.parametrize(
    ("other", "call", "speaks"),
    [
        ({"jax": {"backend": "cpu"}}, "PjitFunction(step)", False),
        ({"tensorflow": {"functions": 1}}, "ExecutorState::Process", False),
        # It computes, too: what the others do is beside it.
        ({"jax": {"backend": "cpu"}}, "aten::add", True),
    ],
)
def test_pytorch_that_only_loads_for_another_framework(
    other: dict[str, Any], call: str, *, speaks: bool
) -> None:
    seen = on_cpu(step_ms=2.0, batch=8)
    trace = answer({Slice.COMPUTE: 1.0}, calls={call: 100}, fmt="xplane")
    trace["devices"][0]["kernels"] = 1000
    facts = {**seen.job.facts, **other}
    at = window(trace, means=seen.job.means, facts=facts)
    assert at.computes("pytorch") is speaks
    assert cannot_judge(NAME, at) is not speaks


def test_a_small_batch_whose_step_is_overhead() -> None:
    finding = found(NAME, on_cpu(step_ms=2.0, batch=8))
    assert finding.gain is not None
    # 100 operators of 13 us in 2 ms, and a fifth of the time in the optimizer, in a batch 32 times
    # as large; or of 6.5 us, in one six times as large.
    high = (1 - 0.35 * 0.8) * (1 - 1 / 32)
    low = 100 * 6.5e-3 / 2.0 * (1 - 1 / 6)
    assert finding.gain.low == pytest.approx(low, abs=0.01)
    assert finding.gain.high == pytest.approx(high, abs=0.01)
    assert finding.evidence[0].value == 8


def test_a_batch_that_is_large() -> None:
    assert is_silent(NAME, on_cpu(step_ms=2.0, batch=256))


def test_a_small_batch_of_large_samples() -> None:
    assert is_silent(NAME, on_cpu(step_ms=20.0, batch=8))


def test_a_batch_that_nobody_knows() -> None:
    assert cannot_judge(NAME, on_cpu(step_ms=2.0, batch=None))


def test_a_gpu_with_short_kernels_and_free_memory() -> None:
    assert found(NAME, on_gpu(900_000, used=0.1)).gain is not None


def test_a_gpu_whose_memory_is_in_use() -> None:
    assert is_silent(NAME, on_gpu(900_000, used=0.8))


def test_a_gpu_with_kernels_that_last() -> None:
    assert is_silent(NAME, on_gpu(200_000, used=0.1))


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, on_gpu(900_000, used=None))


@pytest.mark.parametrize("trace", ["h100_qwen05b", "v100_2rank_nccl", "mi300_ddp_resnet18"])
def test_traces_of_jobs_with_enough_to_do(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert finding.gain is not None
    # Measured: 6.5 times the samples a second.
    assert finding.gain.speedup[0] < 6.5 < finding.gain.speedup[1]
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))


def test_the_gain_is_said_to_be_of_samples() -> None:
    finding = found(NAME, on_cpu(step_ms=2.0, batch=8))
    said = {each.name: (each.value, each.unit) for each in finding.evidence}
    assert said["trained now (the gain is of this)"] == (80, "samples/s")
    assert said["main thread's time for one"] == (pytest.approx(20), "us")


def test_no_line_is_blamed() -> None:
    quiet = on_cpu(step_ms=2.0, batch=8)
    job = replace(quiet.job, lines=(SourceLine("/me/train.py", 5, "train", 0.9),))
    assert found(NAME, replace(quiet, job=job)).where == ()

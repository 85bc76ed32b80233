"""The rule pageable_copies."""

from __future__ import annotations

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, judge, traced, window
from whyidle.monitor.core.slices import Slice

NAME = "pageable_copies"
FIXES = {
    "pytorch": (
        """
import torch
from torch.utils.data import DataLoader, TensorDataset
device = torch.device("cpu")
dataset = TensorDataset(torch.ones(128, 2), torch.zeros(128))
as_before = {"batch_size": 64}
seen = []
def train_step(x, y):
    seen.append(len(x))
""",
        "assert seen == [64, 64]",
    ),
    "jax": (
        """
import jax
import numpy as np
loader = [(np.full(2, float(i)), np.ones(2)) for i in range(4)]
params = 0.0
step = jax.jit(lambda params, x, y: params + (x * y).sum())
""",
        "assert float(params) == 12",
    ),
}
COPY = {
    "direction": "host to device",
    "memory": "pageable",
    "count": 20,
    "bytes": 20 << 24,
    "total_ns": 40_000_000,
}
PAGEABLE = answer(
    {Slice.COMPUTE: 0.6, Slice.EXPOSED_COPY: 0.3, Slice.IDLE_SYNC: 0.1},
    kind="gpu",
    details={Slice.EXPOSED_COPY: {"host to device, pageable": 0.3}},
    copies=[COPY],
)


def test_copies_that_nothing_covers() -> None:
    finding = found(NAME, window(PAGEABLE, facts={"torch": {"loaders": [{"pin_memory": False}]}}))
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.1, 0.4), abs=0.01)
    assert finding.evidence[-1].value == "no"


def test_copies_from_pinned_memory() -> None:
    pinned = PAGEABLE | {"copies": [COPY | {"memory": "pinned"}]}
    assert judge(NAME, window(pinned)) is None


def test_a_few_numbers() -> None:
    assert judge(NAME, window(PAGEABLE | {"copies": [COPY | {"bytes": 80}]})) is None


def test_a_job_without_a_trace_of_a_gpu() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(answer({Slice.COMPUTE: 1.0})))


# Batches of 19 MB, from a loader that does not pin them.
@pytest.mark.parametrize("trace", ["v100_resnet50_workers4", "resnet50_b_workers4"])
def test_real_jobs_with_pageable_batches(trace: str) -> None:
    finding = found(NAME, traced(trace))
    assert finding.gain is not None
    assert 0.01 < finding.gain.expected < 0.05
    assert 15e6 < float(finding.evidence[1].value) < 25e6


@pytest.mark.parametrize("trace", ["h100_qwen05b", "v100_2rank_nccl", "mi300_ddp_resnet18"])
def test_real_jobs_without_them(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def test_tensorflow_copies_in_its_own_way() -> None:
    called = answer({}, calls={"ExecutorState::Process": 5})["calls"]
    assert judge(NAME, window(PAGEABLE | {"format": "xplane", "calls": called})) is None

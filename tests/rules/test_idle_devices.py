"""The rule idle_devices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice

NAME = "idle_devices"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "tensorflow": (
        """
import tensorflow as tf
def build_model():
    return tf.keras.Sequential([tf.keras.layers.Input([4]), tf.keras.layers.Dense(2)])
""",
        """
assert model(tf.ones([3, 4])).shape == (3, 2)
""",
    ),
    "pytorch": (
        """
import os
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dataset, as_before = TensorDataset(torch.zeros(256, 4)), {"batch_size": 64}
model = torch.nn.Linear(4, 2)
""",
        """
torch.distributed.destroy_process_group()
assert len(loader) == 4 and isinstance(model, DistributedDataParallel)
""",
    ),
    "jax": (
        """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
step = jax.jit(lambda params, batch: params + batch.sum())
params, batches = jnp.zeros(()), [jnp.ones((8, 4))] * 2
""",
        "assert len(params.sharding.device_set) == 8 and params == 64",
    ),
}


def _devices(*compute: int) -> list[dict[str, Any]]:
    return [
        {"kind": "gpu", "index": str(n), "span_ns": 100, "compute_ns": ns, "busy_ns": ns}
        for n, ns in enumerate(compute)
    ]


def _trace(*compute: int, share: float = 0.9) -> dict[str, Any]:
    slices = {Slice.COMPUTE: share, Slice.IDLE_DISPATCH: 1 - share}
    return answer(slices, kind="gpu", devices=_devices(*compute))


@pytest.mark.parametrize("probe", ["jax", "torch"])
def test_one_of_eight_devices_does_all_the_work(probe: str) -> None:
    bad = answer({Slice.COMPUTE: 0.9, Slice.IDLE_DISPATCH: 0.1}, kind="gpu")
    finding = found(NAME, window(bad, facts={probe: {"devices": 8, "devices_used": 1}}))
    assert finding.title == "1 of 8 devices does all the work"
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.9 * 7 / 8)
    assert finding.gain.low == pytest.approx(0.9 * (1 - 1 / 4.8))


def test_without_a_trace_nothing_is_predicted() -> None:
    finding = found(NAME, window(facts={"torch": {"devices": 4, "devices_used": 1}}, inside=True))
    assert finding.gain is None
    assert finding.severity is Severity.HIGH


def test_devices_that_a_cpu_plays_share_its_cores() -> None:
    bad = answer({Slice.COMPUTE: 1.0})
    facts = {"jax": {"devices": 8, "devices_used": 1, "backend": "cpu"}}
    two = found(NAME, window(bad, facts=facts, means={m.HOST_CORES: 2.0, m.JOB_CPU: 1.0}))
    assert two.gain is not None
    assert two.gain.high == pytest.approx(0.5)


def test_devices_whose_cores_are_all_taken_are_reported_without_a_gain() -> None:
    facts = {"jax": {"devices": 8, "devices_used": 1, "backend": "cpu"}}
    full = {m.HOST_CORES: 2.0, m.JOB_CPU: 2.0}
    finding = found(NAME, window(answer({Slice.COMPUTE: 1.0}), facts=facts, means=full))
    assert finding.gain is None
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(
    "facts",
    [
        {"jax": {"devices": 8, "devices_used": 8}},
        {"jax": {"devices": 1, "devices_used": 1}},
        {"torch": {"devices": 8, "devices_used": 1, "world_size": 8}},
        {"torch": {"backend": "cpu", "gpus_present": None}},
    ],
)
def test_jobs_that_use_what_they_have(facts: dict[str, dict[str, Any]]) -> None:
    assert judge(NAME, window(facts=facts, inside=True)) is None


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())


def test_a_trace_in_which_some_devices_hardly_compute() -> None:
    finding = found(NAME, window(_trace(90, 92, 1, 0), kind="file"))
    assert finding.title == "2 of 4 devices do all the work"
    assert finding.evidence[0].source == "trace 1"


def test_a_trace_in_which_all_devices_compute() -> None:
    assert judge(NAME, window(_trace(90, 92), kind="file")) is None


def test_eight_devices_that_wait_for_a_silent_host() -> None:
    finding = found(NAME, traced("jax_conv_8gpu"))
    assert finding.gain is None
    assert finding.title is not None
    assert "less than one could" in finding.title
    evidence = {each.name: each.value for each in finding.evidence}
    assert evidence["devices there"] == 8
    assert evidence["work of all, in devices"] == pytest.approx(0.2, abs=0.02)
    assert isinstance(evidence["idle, and the trace does not say why"], float)
    assert evidence["idle, and the trace does not say why"] > 0.5
    assert evidence["of that it only knows"] == "Python waits"


@pytest.mark.parametrize("trace", ["h100_qwen05b", "v100_2rank_nccl", "jax_gemm"])
def test_traces_of_one_device(trace: str) -> None:
    assert judge(NAME, traced(trace)) is None


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_jax"))
    assert finding.title is not None
    assert finding.title.startswith("1 of ")
    assert "before_jax.py" in finding.where[0].file
    assert is_silent(NAME, recorded(f"{NAME}/after_jax"))


def test_devices_that_all_take_part_have_no_batch_to_divide() -> None:
    finding = found(NAME, traced("jax_conv_8gpu"))
    assert finding.fixes is not None
    assert all("host" in fix.text and not fix.code for fix in finding.fixes.values())


@pytest.mark.parametrize(("used", "is_fault"), [(1, True), (4, False)])
def test_graphs_of_tensorflow_that_are_on_one_of_four(used: int, *, is_fault: bool) -> None:
    facts = {"backend": "gpu", "functions": 1, "devices": 4, "devices_used": used}
    watched = window(facts={"tensorflow": facts}, inside=True)
    if is_fault:
        finding = found(NAME, watched)
        assert finding.title == "1 of 4 devices does all the work"
        assert finding.severity is Severity.HIGH
    else:
        assert judge(NAME, watched) is None

"""The rule misaligned_shards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, judge, traced, window
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice

NAME = "misaligned_shards"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import torch
from torch.utils.data import DataLoader, TensorDataset
dataset = TensorDataset(torch.zeros(250, 4))
devices, batch_size, as_before = 8, 100, {"shuffle": True}
""",
        "assert all(len(batch[0]) % devices == 0 for batch in loader) and len(loader) == 2",
    ),
    "jax": (
        """
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
""",
        """
batch, mask = filled(jnp.ones((100, 4)), jax.device_count())
mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
batch = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data")))
assert batch.shape == (104, 4) and int(mask.sum()) == 100
""",
    ),
}


def _trace(*compute: int) -> dict[str, Any]:
    devices = [
        {"kind": "gpu", "index": str(n), "span_ns": 100, "compute_ns": ns}
        for n, ns in enumerate(compute)
    ]
    return answer({Slice.COMPUTE: 0.8, Slice.IDLE_SYNC: 0.2}, kind="gpu", devices=devices)


def _splits(batch: int, devices: int = 8) -> dict[str, dict[str, Any]]:
    return {"torch": {"parallel": ["DataParallel"], "batch_size": batch, "devices_used": devices}}


def test_one_device_has_twice_the_work_of_the_others() -> None:
    finding = found(NAME, window(_trace(80, 40, 40, 40), kind="file"))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx((1 - 50 / 80) * 0.8)
    assert finding.gain.low == pytest.approx(finding.gain.high / 2)
    assert finding.evidence[1].value == pytest.approx(1.6)


def test_devices_with_equal_work() -> None:
    assert judge(NAME, window(_trace(80, 79, 78, 81), kind="file")) is None


def test_devices_without_work_are_another_fault() -> None:
    assert judge(NAME, window(_trace(80, 1, 0, 2), kind="file")) is None


@pytest.mark.parametrize(("batch", "severity"), [(9, Severity.MEDIUM), (1001, Severity.LOW)])
def test_a_batch_that_the_gpus_do_not_divide(batch: int, severity: Severity) -> None:
    finding = found(NAME, window(facts=_splits(batch)))
    assert finding.title == f"A batch of {batch} does not divide by 8 devices"
    assert finding.severity is severity
    assert finding.gain is None


@pytest.mark.parametrize("facts", [_splits(64), _splits(9, 1), {"jax": {"devices_used": 1}}])
def test_a_batch_that_divides_or_need_not(facts: dict[str, Any]) -> None:
    assert judge(NAME, window(facts=facts)) is None


def _on_each(**more: Any) -> dict[str, dict[str, Any]]:
    facts = {"devices_used": 4, "replicated_bytes": 8_000_000, "divided_bytes": 0}
    return {"jax": {**facts, "collectives": 0, "executables_known": 3, **more}}


def test_all_devices_do_the_same() -> None:
    trace = answer({Slice.COMPUTE: 0.8}, kind="cpu")
    finding = found(NAME, window(trace, facts=_on_each()))
    assert finding.title == "Each of 4 devices does all of the work"
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.8 * 3 / 4)
    assert finding.frameworks == ("jax",)
    without = found(NAME, window(facts=_on_each()))
    assert (without.gain, without.severity) == (None, Severity.HIGH)


@pytest.mark.parametrize(
    "facts",
    [
        _on_each(divided_bytes=4_000),
        _on_each(collectives=2),
        _on_each(replicated_bytes=400),
        _on_each(executables_known=None),
        _on_each(collectives=None),
        _on_each(devices_used=1),
    ],
)
def test_devices_with_parts_of_their_own(facts: dict[str, Any]) -> None:
    assert is_silent(NAME, window(facts=facts))


def test_nothing_is_known() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(facts={"jax": {"devices_used": 8}}))


@pytest.mark.parametrize("trace", ["h100_qwen05b", "v100_2rank_nccl", "jax_conv_8gpu", "jax_gemm"])
def test_healthy_traces_and_those_of_other_faults(trace: str) -> None:
    assert is_silent(NAME, traced(trace))

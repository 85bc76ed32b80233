"""The rule replicated_parameters."""

from __future__ import annotations

from tests.rules.device_memory import GB, jax, torch
from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity

NAME = "replicated_parameters"
FIXES = {
    "jax": (
        """
import jax, jax.numpy as jnp
params = jnp.ones((16, 4))
""",
        "assert not params.sharding.is_fully_replicated",
    ),
    "pytorch": (
        """
import torch, torch.distributed.fsdp
alone = {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}
torch.distributed.init_process_group("gloo", **alone)
torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
model = Model()
""",
        """
kind = type(next(model.parameters())).__name__
torch.distributed.destroy_process_group()
assert kind == "DTensor", kind
""",
    ),
}
COPIED = {
    "parallel": "DistributedDataParallel",
    "world_size": 8,
    "parameters": 3 * 10**9,
    "parameter_bytes": 12 * 10**9,
}


def test_ranks_that_hold_the_whole_model_each() -> None:
    finding = found(NAME, torch(facts=COPIED))
    # A full memory is no fault by itself.
    assert finding.severity is Severity.LOW
    assert finding.evidence[0].value == 24e9
    assert found(NAME, torch(facts=COPIED, failed=1)).severity is Severity.MEDIUM


def test_arrays_that_are_whole_on_each_device() -> None:
    whole = {"devices": 8, "devices_used": 8, "replicated_bytes": 8 * 30 * GB}
    pool = {m.PROCESS_POOL_LIMIT: 8 * 60.0 * GB, m.PROCESS_POOL_PEAK: 8 * 55.0 * GB}
    finding = found(NAME, jax(facts=whole, means=pool))
    assert finding.evidence[0].value == 30 * GB


def test_what_is_divided_or_small_is_no_fault() -> None:
    divided = {"devices": 8, "devices_used": 8, "replicated_bytes": GB}
    pool = {m.PROCESS_POOL_LIMIT: 8 * 60.0 * GB, m.PROCESS_POOL_PEAK: 8 * 55.0 * GB}
    assert judge(NAME, jax(facts=divided, means=pool)) is None
    assert judge(NAME, torch(facts={**COPIED, "sharded": "DTensor"})) is None
    assert judge(NAME, torch(facts={**COPIED, "parallel": "FullyShardedDataParallel"})) is None
    assert judge(NAME, torch(facts={**COPIED, "parameter_bytes": 10**9})) is None


def test_one_device_or_room_is_no_fault() -> None:
    assert judge(NAME, torch(facts={**COPIED, "world_size": 1})) is None
    assert judge(NAME, jax(facts={"replicated_bytes": 0})) is None
    assert judge(NAME, torch({m.PROCESS_POOL_PEAK: 40.0 * GB}, COPIED)) is None


def test_without_an_allocator_it_is_not_judged() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, torch(facts={**COPIED, "parameter_bytes": None}))

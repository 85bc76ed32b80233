"""What was recorded on a CPU, as a GPU would have it: the host's part of it says the same."""

from __future__ import annotations

from typing import Final

import pytest

from tests.rules.windows import WINDOWS, on_a_gpu, recorded
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.diagnosis.diagnose import diagnose

# What only a GPU shows: its kernels and copies, or whether its host can work ahead of it.
OF_A_DEVICE: Final = frozenset(
    {
        "allocation_churn/before_torch",
        "dense_embedding_gradients/before_torch",
        "eager_launch_bound/before_torch",
        "host_resident_data/before_jax",
        "large_readback/before_jax",
        "large_readback/before_torch",
        "per_step_sync/before_torch",
        "recomputed_activations/before_torch",
        "tiny_work/before_torch",
    }
)
RECORDED: Final = sorted(
    name
    for path in WINDOWS.rglob("before_*.json.gz")
    if (name := str(path.relative_to(WINDOWS)).removesuffix(".json.gz")) not in OF_A_DEVICE
)


@pytest.mark.parametrize("name", RECORDED)
def test_the_first_finding_is_the_same_on_a_gpu(name: str) -> None:
    seen = recorded(name)
    on_cpu, on_gpu = (diagnose(each).findings for each in (seen, on_a_gpu(seen)))
    assert on_gpu[0].rule.id == on_cpu[0].rule.id
    assert not seen.frameworks or on_a_gpu(seen).device == "gpu"


@pytest.mark.parametrize("name", ["healthy/mlp_jax", "healthy/mlp_torch"])
def test_who_is_well_on_a_cpu_is_well_on_a_gpu(name: str) -> None:
    found = diagnose(on_a_gpu(recorded(name))).findings
    assert [each for each in found if each.severity.rank < Severity.LOW.rank] == []

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


def _names(like: str) -> list[str]:
    paths = sorted(WINDOWS.rglob(like))
    return [str(path.relative_to(WINDOWS)).removesuffix(".json.gz") for path in paths]


RECORDED: Final = [name for name in _names("before_*.json.gz") if name not in OF_A_DEVICE]
WELL: Final = [*_names("healthy/*.json.gz"), *_names("after_*.json.gz")]


@pytest.mark.parametrize("name", RECORDED)
def test_the_first_finding_is_the_same_on_a_gpu(name: str) -> None:
    seen = recorded(name)
    on_cpu, on_gpu = (diagnose(each).findings for each in (seen, on_a_gpu(seen)))
    assert on_gpu[0].rule.id == on_cpu[0].rule.id
    assert not seen.frameworks or on_a_gpu(seen).device == "gpu"


@pytest.mark.parametrize("name", WELL)
def test_who_is_well_on_a_cpu_is_well_on_a_gpu(name: str) -> None:
    seen = recorded(name)
    on_cpu, on_gpu = (
        {x.rule.id for x in diagnose(each).findings if x.severity.rank < Severity.LOW.rank}
        for each in (seen, on_a_gpu(seen))
    )
    # Beside a fix others may have taken the cores: of that a GPU says no more.
    assert on_gpu <= on_cpu

"""Windows of jobs on a GPU whose memory is nearly full; made by hand: a CPU has no such memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.rules.windows import window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.signals.recorded import GpuUser, SeenGpu
from whyidle.monitor.signals.window import Window

GB: Final = 1 << 30
TOTAL: Final = 80.0 * GB
# A batch size that somebody has found by trying: full, and nothing fails.
FULL: Final[dict[Metric, float]] = {
    m.PROCESS_POOL_PEAK: 72.0 * GB,
    m.PROCESS_POOL_USED: 40.0 * GB,
    m.PROCESS_POOL_RESERVED: 75.0 * GB,
    m.PROCESS_POOL_SPLIT: 2.0 * GB,
    m.PROCESS_ALLOC_RETRIES: 0.0,
    m.PROCESS_ALLOC_OOMS: 0.0,
}
# An optimizer moves them: seven billion with moments do not fit, one billion does.
MODEL: Final = {"backend": "cuda", "parameters": 10**9, "parameter_bytes": 4 * 10**9}


def gpu(*users: GpuUser, index: str = "0", used: float = 76.0 * GB, **means: float) -> SeenGpu:
    named = {getattr(m, name): value for name, value in means.items()}
    known = {m.GPU_MEMORY_TOTAL: TOTAL, m.GPU_MEMORY_USED: used, m.GPU_UTILISATION: 0.7} | named
    return SeenGpu(index, "NVIDIA H100", owned=True, means=known, users=users)


def torch(
    means: Mapping[Metric, float] | None = None,
    facts: Mapping[str, Any] | None = None,
    *,
    failed: int = 0,
    **more: Any,
) -> Window:
    ranges = {
        m.PROCESS_POOL_USED: (18.0 * GB, 70.0 * GB),
        m.PROCESS_ALLOC_OOMS: (0.0, float(failed)),
    }
    return window(
        means={**FULL, **(means or {})},
        facts={"torch": {**MODEL, "devices_used": 1, "batch_size": 8, **(facts or {})}},
        ranges=more.pop("ranges", ranges),
        gpus=more.pop("gpus", (gpu(),)),
        inside=True,
        **more,
    )


def jax(
    program: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    means: Mapping[Metric, float] | None = None,
) -> Window:
    step = {
        "name": "jit_step", "argument_bytes": 12 * GB, "output_bytes": 12 * GB,
        "aliased_bytes": 12 * GB, "temporary_bytes": 45 * GB, **(program or {}),
    }  # fmt: skip
    known = {"backend": "gpu", "devices": 1, "devices_used": 1, "largest_executables": [step]}
    pool = {m.PROCESS_POOL_LIMIT: 60.0 * GB, m.PROCESS_POOL_PEAK: 57.0 * GB}
    return window(
        means={**FULL, **pool, m.PROCESS_POOL_USED: 30.0 * GB, **(means or {})},
        facts={"jax": {**known, **(facts or {})}},
        gpus=(gpu(),),
        inside=True,
    )

"""The rule full_precision_matmul."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, traced, window
from whyidle.monitor.signals.window import Window
from whyidle.monitor.slices import Slice

NAME = "full_precision_matmul"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import torch
device, model, loss_of = "cpu", torch.nn.Linear(8, 2), torch.nn.functional.cross_entropy
x, y = torch.randn(4, 8), torch.zeros(4, dtype=torch.long)
""",
        "assert loss.dtype == torch.float32 and model.weight.grad.dtype == torch.float32",
    ),
    "jax": (
        "import jax, jax.numpy as jnp",
        """
text = jax.jit(matmul).lower(jnp.ones((4, 4)), jnp.ones((4, 4))).as_text()
assert "tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xf32>" in text
""",
    ),
}


def on_gpu(dtype: str, model: str | None = "NVIDIA H100 80GB HBM3") -> Window:
    def kernel(family: str, of: str, ns: int) -> dict[str, Any]:
        return {"name": family, "family": family, "dtype": of, "total_ns": ns, "count": 10}

    told: dict[str, Any] = answer(
        {Slice.COMPUTE: 0.9, Slice.IDLE_DISPATCH: 0.1},
        kind="gpu",
        kernels={"count": 30, "total_ns": 1000, "tensor_core_share": [0.0, 0.0]},
        top_kernels=[
            kernel("matmul", dtype, 700),
            kernel("other", dtype, 300),
            kernel("communication", "f32", 9000),
        ],
    )
    told["devices"][0]["model"] = model
    return window(told, kind="file")


def test_products_in_float32() -> None:
    told = found(NAME, on_gpu("f32"))
    assert told.gain is not None
    assert told.slice is Slice.COMPUTE
    assert 0.9 * 0.7 * 0.6 <= told.gain.low < told.gain.high <= 0.9 * (0.7 * 0.85 + 0.3 * 0.4)
    assert told.evidence[0].value == pytest.approx(0.7)


def test_tf32_leaves_less_to_gain() -> None:
    full, less = found(NAME, on_gpu("f32")).gain, found(NAME, on_gpu("tf32")).gain
    assert full is not None
    assert less is not None
    assert less.high < full.low


def test_products_in_bfloat16() -> None:
    assert is_silent(NAME, on_gpu("bf16"))


def test_a_gpu_without_such_tensor_cores() -> None:
    assert is_silent(NAME, on_gpu("f32", model="Tesla V100-SXM2-32GB"))


def test_a_gpu_that_nobody_names() -> None:
    assert cannot_judge(NAME, on_gpu("f32", model=None))


@pytest.mark.parametrize("trace", ["h100_qwen05b", "h100_owlv2", "mi300_ddp", "jax_gemm_mi300"])
def test_traces_in_bfloat16(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def test_a_trace_in_tf32() -> None:
    told = found(NAME, traced("a100_nccl_small"))
    assert told.gain is not None
    assert told.gain.high < 0.1


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(answer({Slice.COMPUTE: 1.0})))

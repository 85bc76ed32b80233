"""The rule full_precision_matmul."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, judge, traced, window
from whyidle.monitor.core.finding import NotChecked, Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "full_precision_matmul"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "tensorflow": (
        """
import keras
""",
        """
layer = keras.layers.Dense(2)
layer.build((None, 4))
assert (layer.compute_dtype, layer.variable_dtype) == ("bfloat16", "float32")
keras.mixed_precision.set_global_policy("float32")
""",
    ),
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

    trace: dict[str, Any] = answer(
        {Slice.COMPUTE: 0.9, Slice.IDLE_DISPATCH: 0.1},
        kind="gpu",
        kernels={
            "count": 30,
            "total_ns": 1000,
            "tensor_core_share": [0.0, 0.0],
            "families_ns": {"matmul": 700, "other": 300},
        },
        top_kernels=[
            kernel("matmul", dtype, 700),
            kernel("other", dtype, 300),
            kernel("communication", "f32", 9000),
        ],
    )
    trace["devices"][0]["model"] = model
    return window(trace, kind="file")


def test_products_in_float32() -> None:
    finding = found(NAME, on_gpu("f32"))
    assert finding.gain is not None
    assert finding.slice is Slice.COMPUTE
    assert 0.9 * 0.7 * 0.6 <= finding.gain.low < finding.gain.high <= 0.9 * (0.7 * 0.93 + 0.3 * 0.4)
    assert finding.evidence[0].value == pytest.approx(0.7)


def test_tf32_leaves_less_to_gain() -> None:
    full, less = found(NAME, on_gpu("f32")).gain, found(NAME, on_gpu("tf32")).gain
    assert full is not None
    assert less is not None
    assert less.low < full.low
    assert less.high < full.high


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
    finding = found(NAME, traced("a100_nccl_small"))
    assert finding.gain is not None
    assert finding.gain.high < 0.1


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(answer({Slice.COMPUTE: 1.0})))


@pytest.mark.parametrize("model", ["Quadro RTX 6000", "Quadro RTX 4000", "Tesla T4", "RTX 2080 Ti"])
def test_turing_has_no_such_units(model: str) -> None:
    assert judge(NAME, on_gpu("f32", model=model)) is None


@pytest.mark.parametrize(
    ("model", "back"),
    [
        ("NVIDIA A100-SXM4-80GB", 0.6),
        ("AMD Instinct MI300X", 0.6),
        ("NVIDIA A10G", 0.4),
        ("NVIDIA L40S", 0.4),
        ("NVIDIA RTX A6000", 0.4),
        ("NVIDIA RTX 6000 Ada Generation", 0.4),
        ("NVIDIA GeForce RTX 3090", 0.2),
        ("NVIDIA GeForce RTX 4090", 0.2),
    ],
)
def test_smaller_cards_gain_less(model: str, back: float) -> None:
    gain = found(NAME, on_gpu("f32", model=model)).gain
    assert gain is not None
    assert gain.low == pytest.approx(0.9 * 0.7 * back, abs=0.08)


def test_the_name_of_the_gpu_is_asked_for() -> None:
    verdict = judge(NAME, on_gpu("f32", model=None))
    assert isinstance(verdict, NotChecked)
    assert verdict.need == "the name of the GPU"


def test_the_driver_may_name_the_gpu() -> None:
    nameless = on_gpu("f32", model=None)
    gpus = (SeenGpu("0", "NVIDIA H100", owned=True, means={}),)
    found(NAME, replace(nameless, job=replace(nameless.job, gpus=gpus)))


def test_only_lines_with_products_are_named() -> None:
    taken = on_gpu("f32").traces[0].answer
    where = [
        {"slice": Slice.COMPUTE, "file": "t.py", "line": n, "function": "f", "share": 0.5,
         "calls": [{"name": name, "ns": 1}]}
        for n, name in enumerate(("nn.Module: Linear_0", "aten::add", "aten::addmm"))
    ]  # fmt: skip
    finding = found(NAME, window({**taken, "where": where}, kind="file"))
    assert [place.line for place in finding.where] == [0, 2]


def of_graphs(
    products: dict[str, int] | None,
    policy: str = "float32",
    backend: str = "gpu",
    model: str | None = "NVIDIA A100-SXM4-40GB",
) -> Window:
    facts: dict[str, Any] = {"backend": backend, "functions": 1, "dtype_policy": policy}
    if products is not None:
        facts["products"] = products
    gpus = (SeenGpu("0", model, owned=True, means={}),)
    return window(facts={"tensorflow": facts}, gpus=gpus, inside=True)


def test_a_policy_that_was_set_once_the_model_was_built() -> None:
    finding = found(NAME, of_graphs({"float32": 12}, "mixed_bfloat16"))
    assert finding.severity is Severity.MEDIUM
    assert finding.gain is None
    assert str(finding.title).startswith("The policy mixed_bfloat16 was set once")
    # A layer or two may be in float32 on purpose.
    assert judge(NAME, of_graphs({"float32": 3, "bfloat16": 9}, "mixed_bfloat16")) is None


def test_graphs_of_float32_by_their_types_alone() -> None:
    assert found(NAME, of_graphs({"float32": 12})).severity is Severity.LOW
    assert judge(NAME, of_graphs({"float32": 12}, model="Tesla V100-SXM2-16GB")) is None
    assert judge(NAME, of_graphs({"float16": 12})) is None
    assert cannot_judge(NAME, of_graphs({"float32": 12}, backend="cpu"))
    assert cannot_judge(NAME, of_graphs({"float32": 12}, model=None))
    assert cannot_judge(NAME, of_graphs(None))

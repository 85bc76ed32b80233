"""Matrices are multiplied in full precision while the tensor cores stand idle.

## What it sees
In a trace of a GPU that has tensor cores for bfloat16 (Ampere and later, MI200 and later): what
part of the time of its kernels goes to products of matrices and convolutions in float32 or TF32,
by the names of the kernels.

## Why it costs
A tensor core multiplies bfloat16 8 to 16 times as fast as the float32 units of the same chip, and
twice as fast as TF32. Half the bytes to read and write make the rest of the kernels faster, too.

## How to fix
Let the products run in bfloat16 and keep the parameters in float32: in PyTorch by `torch.autocast`
around forward pass and loss, in JAX by `dtype` of the layers (Flax) or by casting activations.
bfloat16 has the range of float32, so that no scaling of the loss is needed. Where that is too
coarse, TF32 costs nothing: `torch.backends.cuda.matmul.fp32_precision = "tf32"`. In Keras the
policy `mixed_bfloat16` is set before the model is built.

## When it is wrong
Small products wait for memory or for their launch and gain little. A few computations need the
digits: sums over very many elements, norms, losses; autocast leaves those in float32. On a CPU it
pays only with units for bfloat16 (AMX, AVX-512 BF16), which no trace tells of: not judged here.

## Documents
D4 summary (bfloat16 matmuls) and D5 (AMP, Keras). In JAX `default_matmul_precision("bfloat16")`
changes nothing on a GPU. D5's `torch.cuda.amp.autocast` is deprecated, its
`keras.mixed_precision.experimental` is gone. The code for TensorFlow was not run here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from whyidle.monitor.finding import Evidence, Fix, Found, Gain, Need, Verdict
from whyidle.monitor.rule import Rule
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window
from whyidle.monitor.slices import Slice

# Less of the kernels' time is not worth a change of the arithmetic.
LEAST: Final = 0.05
PRODUCTS: Final = ("matmul", "convolution", "attention")
# Tensor cores for bfloat16: compute capability 8 and more, CDNA 2 and 3.
ABLE: Final = re.compile(
    r"\b(A100|A800|A10G?|A16|A2|A30|A40|H100|H200|H800|H20|GH200|B100|B200|B300|GB200|L4|L20|L40S?"
    r"|RTX [345]0\d\d|RTX (PRO )?(A?[2-6]\d{3})|MI2\d\d|MI3\d\d)|capability (8|9|1[0-2])\.",
)
# Of a product in float32: four times as fast is easily had, more than seven times seldom.
FROM_F32: Final = (0.6, 0.85)
# From TF32 it is twice at most, and some wait for memory either way.
FROM_TF32: Final = (0.2, 0.5)
# Kernels that read and write float32: half the bytes, where autocast reaches them at all.
OTHERS: Final = (0.0, 0.4)


def detect(window: Window) -> Verdict:
    """Judge the precision of the products."""
    trace = window.gpu_trace
    if trace is None:
        return window.lacks(Need.GPU_TRACE)
    ran, work = trace.section("kernels"), trace.share(Slice.COMPUTE)
    if not ran or not ran["total_ns"] or work is None:
        return window.lacks(Need.GPU_TRACE)
    models = [device["model"] for device in trace.devices]
    if not all(models):
        return window.lacks(Need.GPU, "which GPU it is")
    full, tf32 = _share(trace, ("f32", "f64")), _share(trace, ("tf32",))
    if full + tf32 < LEAST or not all(ABLE.search(model) for model in models):
        return None
    other = _share(trace, ("f32",), products=False)
    parts = ((full, FROM_F32), (tf32, FROM_TF32), (other, OTHERS))
    low, high = (work.value * sum(part * back[i] for part, back in parts) for i in (0, 1))
    cores = ran["tensor_core_share"]
    evidence = [
        Evidence.of("products in float32", trace.measure(full, "ratio")),
        Evidence.of("products in TF32", trace.measure(tf32, "ratio")),
    ]
    if cores:
        evidence.append(Evidence.of("kernels on tensor cores", trace.measure(cores[1], "ratio")))
    return Found(
        gain=Gain.between(low, high),
        evidence=tuple(evidence),
        where=window.where(),
        slice=Slice.COMPUTE,
    )


def _share(trace: Traced, dtypes: tuple[str, ...], *, products: bool = True) -> float:
    """Return what part of the kernels' time, without communication, is of these types."""
    kernels = [k for k in trace.answer["top_kernels"] if k["family"] != "communication"]
    whole = sum(kernel["total_ns"] for kernel in kernels) or 1
    mine = (k["total_ns"] for k in kernels if _is(k, dtypes, products=products))
    return float(sum(mine) / whole)


def _is(kernel: Mapping[str, Any], dtypes: tuple[str, ...], *, products: bool) -> bool:
    return kernel["dtype"] in dtypes and (kernel["family"] in PRODUCTS) is products


rule = Rule(
    title="Matrices are multiplied in full precision while the tensor cores stand idle",
    documents=("D4 summary", "D5"),
    fixes={
        "pytorch": Fix(
            "Run forward pass and loss in bfloat16, where that is safe.",
            """\
with torch.autocast(device, dtype=torch.bfloat16):
    loss = loss_of(model(x), y)
loss.backward()""",
        ),
        "jax": Fix(
            "Multiply in bfloat16, keep parameters and sums in float32.",
            """\
def matmul(x, weight):
    return jnp.matmul(
        x.astype(jnp.bfloat16),
        weight.astype(jnp.bfloat16),
        preferred_element_type=jnp.float32,
    )""",
        ),
        "tensorflow": Fix(
            "Set the policy before the model is built.",
            'keras.mixed_precision.set_global_policy("mixed_bfloat16")',
        ),
    },
    detect=detect,
)

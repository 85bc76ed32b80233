"""Matmuls run in full precision; the tensor cores are idle.

## What it sees
In a trace of a GPU with bfloat16 tensor cores (Ampere, MI200 and later): the time of products in
float32 or TF32. In TensorFlow also Keras' policy.

## Why it costs
bfloat16 is 16 times as fast as float32 on a data-center GPU, 4 times on smaller cards, twice on
gaming cards, and twice as fast as TF32.

## How to fix
The loss needs no scaling. In Flax set `dtype` of the layers. If bfloat16 is too coarse:
`torch.backends.cuda.matmul.fp32_precision = "tf32"`.

## When it is wrong
Very long sums, norms and losses need float32: autocast leaves them so. CPUs are not judged: they
need AMX or AVX-512 BF16.

## Documents
D4 summary (bfloat16 matmuls) and D5 (AMP, Keras). In JAX `default_matmul_precision("bfloat16")`
changes nothing on a GPU. D5's `torch.cuda.amp.autocast` is deprecated, its
`keras.mixed_precision.experimental` is gone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import of_slice

PRODUCTS: Final = ("matmul", "convolution", "attention")
# Tensor cores for bfloat16: compute capability 8 and more, CDNA 2 and 3.
# Turing (T4, Quadro RTX 4000 to 8000, RTX 20x0) has none. By their data sheets such a product is 15
# times as fast as one in float32 in data centers, 4 times on smaller cards and workstations, twice
# on those for games. What comes back is less, since a product also reads and writes: the step of a
# transformer, nine tenths of it products, became 6 to 8 times as fast on an H100 and an H200.
FROM_F32: Final[tuple[tuple[re.Pattern[str], tuple[float, float]], ...]] = (
    (
        re.compile(
            r"\b(A100|A800|A30|H100|H200|H800|GH200|B100|B200|B300|GB200|MI2\d\d|MI3\d\d)"
            r"|capability (8\.0|9\.|10\.)"
        ),
        (0.6, 0.93),
    ),
    (
        re.compile(
            r"\b(A10G?|A16|A2|A40|L4|L40S|H20|RTX A[2-6]\d{3}|RTX [2-6]\d{3} Ada|RTX PRO \d{4})\b"
        ),
        (0.4, 0.75),
    ),
    (re.compile(r"\b(L20|L40|RTX [345]0[5-9]0)\b|capability (8\.|1[12]\.)"), (0.2, 0.5)),
)
# From TF32 it is twice by the data sheets, and some wait for memory either way; under the power cap
# of an H200 a step of JAX with nine tenths in such products became 2.2 times as fast.
FROM_TF32: Final = (0.2, 0.65)
# Kernels that read and write float32: half the bytes, where autocast reaches them at all.
OTHERS: Final = (0.0, 0.4)
_MULTIPLIES: Final = re.compile(r"(?i)matmul|linear|conv\dd|convolution|attention|\b(add|b|)mm\b")


def detect(window: Window) -> Verdict:
    """Judge the precision of the products."""
    trace = window.gpu_trace
    if trace is None:
        return _of_graphs(window)
    ran, work = trace.kernels, trace.share(Slice.COMPUTE)
    if not ran or not ran["total_ns"] or work is None:
        return window.lacks(Need.GPU_TRACE)
    models = [device["model"] or "" for device in trace.devices]
    backs = _from_f32(window, models if all(models) else _by_driver(window))
    full, tf32 = _share(trace, ("f32", "f64")), _share(trace, ("tf32",))
    # Less of the kernels' time is not worth a change of the arithmetic.
    if full + tf32 < Severity.MEDIUM.least or not backs:
        return None
    other = _share(trace, ("f32",), products=False)
    parts = ((full, min(backs)), (tf32, FROM_TF32), (other, OTHERS))
    low, high = (work.value * sum(part * back[i] for part, back in parts) for i in (0, 1))
    cores = ran["tensor_core_share"]
    measures = {
        "products in float32": trace.measure(full, "ratio"),
        "products in TF32": trace.measure(tf32, "ratio"),
        "kernels on tensor cores": trace.measure(cores[1], "ratio") if cores else None,
    }
    return Found(
        gain=Gain.between(low, high),
        evidence=Evidence.known(measures),
        # The lines that compute products, by the names of their calls.
        where=of_slice(window, Slice.COMPUTE, _MULTIPLIES),
        slice=Slice.COMPUTE,
    )


def _of_graphs(window: Window) -> Verdict:
    """Judge the products of TensorFlow's graphs by their types alone."""
    products = window.fact("products")
    if not isinstance(products, dict) or window.device != "gpu":
        return window.lacks(Need.GPU_TRACE)
    counts = {str(dtype): n for dtype, n in products.items() if isinstance(n, int)}
    full, whole = counts.get("float32", 0), sum(counts.values())
    if not whole or full < NEARLY_ALL * whole or not _from_f32(window, _by_driver(window)):
        return None
    job, policy, title = window.job, window.fact("dtype_policy"), None
    evidence = [
        Evidence.of("products in float32", job.measure(full, "count")),
        Evidence.of("products", job.measure(whole, "count")),
    ]
    if isinstance(policy, str) and policy.startswith("mixed_"):
        evidence.append(Evidence("Keras' policy", policy, "", "agent", job.age_s))
        title = f"The policy {policy} was set once the model was built: it computes in float32"
    return Found(
        None,
        tuple(evidence),
        severity=Severity.MEDIUM if title else Severity.LOW,
        confidence=Confidence.INFERRED,
        title=title,
        frameworks=("tensorflow",),
    )


def _by_driver(window: Window) -> list[str]:
    return [gpu.name or "" for gpu in window.gpus] or [""]


def _from_f32(window: Window, models: Sequence[str]) -> list[tuple[float, float]]:
    """Return what part of a product comes back on each GPU; none: one has no such tensor cores.

    Raises ``Lacking`` where one has no name.
    """
    window.needed(all(models) or None, Need.GPU_NAME)
    backs = [next((back for like, back in FROM_F32 if like.search(x)), None) for x in models]
    known = [back for back in backs if back is not None]
    return known if len(known) == len(backs) else []


def _share(trace: Traced, dtypes: tuple[str, ...], *, products: bool = True) -> float:
    """Return what part of the kernels' time, without communication, is of these types."""
    kernels = [k for k in trace.answer["top_kernels"] if k["family"] != "communication"]
    whole = sum(kernel["total_ns"] for kernel in kernels) or 1
    mine = [k for k in kernels if k["dtype"] in dtypes and (k["family"] in PRODUCTS) is products]
    return float(sum(k["total_ns"] for k in mine) / whole)


rule = Rule(
    title="Matmuls run in full precision; the tensor cores are idle",
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
)

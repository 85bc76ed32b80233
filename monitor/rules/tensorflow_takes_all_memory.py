"""TensorFlow reserves the GPU's memory and uses little of it.

## What it sees
GPU memory above the peak of TensorFlow's allocator, without memory growth or a limit.

## Why it costs
TensorFlow takes nearly all memory at its first use of a GPU. PyTorch, JAX or an evaluation then
find none.

## How to fix
`TF_FORCE_GPU_ALLOW_GROWTH=true` in the environment does the same.

## When it is wrong
A job alone on its GPU loses nothing. A first evaluation may raise the peak later.

## Documents
D5 (memory growth and a limit per process).
"""

from __future__ import annotations

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import MOSTLY, NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window


def detect(window: Window) -> Verdict:
    """Judge what is held beside what was ever used."""
    if not window.job.inside:
        return window.lacks(Need.INSIDE)
    if window.fact("memory_growth") or window.fact("memory_limited"):
        return None
    peak = window.job.mean(m.PROCESS_POOL_PEAK)
    gpus = [gpu for gpu in window.gpus if gpu.means.get(m.GPU_MEMORY_TOTAL)]
    if peak is None or not gpus:
        return window.lacks(Need.GPU)
    total = sum(gpu.means[m.GPU_MEMORY_TOTAL] for gpu in gpus)
    held = sum(user.memory or 0.0 for gpu in gpus for user in gpu.users if user.is_ours)
    if held < NEARLY_ALL * total or peak.value > MOSTLY * held:
        return None
    is_shared = any(not user.is_ours for gpu in gpus for user in gpu.users)
    return Found(
        gain=None,
        severity=Severity.MEDIUM if is_shared else Severity.INFO,
        confidence=Confidence.MEASURED,
        evidence=(
            Evidence.of("memory held", window.job.measure(held, "bytes", "nvml")),
            Evidence.of("most memory in use", peak),
            Evidence.of("memory of its GPUs", window.job.measure(total, "bytes", "nvml")),
        ),
    )


rule = Rule(
    title="TensorFlow reserves the GPU's memory and uses little of it",
    documents=("D5",),
    kind=Kind.MEMORY,
    fixes={
        "tensorflow": Fix(
            "Let memory grow, or set a limit, before anything uses the GPU. Never set both.",
            """\
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)""",
        )
    },
    only=("tensorflow",),
)

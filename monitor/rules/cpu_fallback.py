"""The job computes on the CPU although there is a GPU.

## What it sees
The backend is the CPU, and there is a GPU. If JAX_PLATFORMS or an empty CUDA_VISIBLE_DEVICES asks
for the CPU, it is at most information.

## Why it costs
JAX falls back with one warning; PyTorch stays on the CPU unless model and data are moved.

## How to fix
An older driver needs `jax[cuda12]`. PyTorch needs a build with CUDA, a container `--gpus all`.

## When it is wrong
A small model may belong on the CPU. No gain is predicted.

## Documents
D1 核心机制 and 性能验证 (`jax.devices()`, nvidia-smi). Its `PositionalSharding` is gone. JAX uses a
GPU by default: no need to move arrays by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from whyidle.monitor.core.finding import PROBES, Confidence, Evidence, Found
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window

# What a person says who wants no GPU.
HIDDEN: Final = frozenset({"", "-1", "none", "NoDevFiles"})


def detect(window: Window) -> Verdict:
    """Compare what the job computes with to what there is."""
    facts = {name: said for name, said in window.job.facts.items() if "backend" in said}
    if not facts:
        return None if window.gpu_trace is not None else window.lacks(Need.INSIDE)
    if any(said["backend"] != "cpu" for said in facts.values()):
        # Two frameworks often share the work: one that is on the GPU is enough.
        return None
    seen = [said.get("gpus_present") for said in facts.values()]
    in_job = max((n for n in seen if isinstance(n, int)), default=None)
    by_nvml = len(window.job.gpus)
    gpus = max(in_job or 0, by_nvml)
    if gpus == 0:
        return None if in_job is not None else window.lacks(Need.GPU)
    job, chosen, title = window.job, _chosen(facts), None
    if chosen is not None:
        title = f"The job computes on the CPU, as {chosen[0]} says, although there is a GPU"
    elif in_job == 0:
        title = "The machine has a GPU that the job cannot open, so it computes on the CPU"
    measures = {
        "GPUs there": job.measure(gpus, "count", "nvml" if by_nvml >= gpus else "agent"),
        "GPUs that the job could open": None if in_job is None else job.measure(in_job, "count"),
    }
    # Julia mostly computes on CPUs, and from outside only the driver shows, once it is loaded.
    named = tuple(PROBES[name] for name in facts if name in PROBES)
    return Found(
        gain=None,
        evidence=(
            *Evidence.known(measures),
            *(job.said(f"backend of {name}", str(said["backend"])) for name, said in facts.items()),
            *(() if chosen is None else (job.said(*chosen),)),
        ),
        severity=Severity.INFO if chosen else Severity.HIGH if named else Severity.LOW,
        confidence=Confidence.MEASURED if named else Confidence.HINTED,
        title=title,
        frameworks=named,
    )


def _chosen(facts: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return by what the user chose the CPU, and the words of it."""
    for said in facts.values():
        asked, visible = said.get("platforms_asked"), said.get("gpus_visible")
        if isinstance(asked, str) and asked.split(",")[0].strip() == "cpu":
            return "JAX_PLATFORMS", asked
        if isinstance(visible, str) and visible.strip() in HIDDEN:
            return "CUDA_VISIBLE_DEVICES", visible
    return None


rule = Rule(
    title="The job computes on the CPU although there is a GPU",
    documents=("D1 核心机制", "D1 性能验证"),
    fixes={
        "jax": Fix(
            'Install the CUDA build: pip install -U "jax[cuda13]". Then have the job check its'
            " backend.",
            """\
backend = jax.default_backend()
if backend == "cpu":
    print("JAX found no GPU:", jax.devices())""",
        ),
        "pytorch": Fix(
            "Move the model and each batch to the GPU.",
            """\
device = "cuda" if torch.cuda.is_available() else "cpu"
model = model.to(device)
for x, y in batches:
    loss = loss_of(model(x.to(device)), y.to(device))""",
        ),
        "tensorflow": Fix(
            "Install tensorflow[and-cuda] if TensorFlow finds no GPU.",
            'assert tf.config.list_physical_devices("GPU")',
        ),
    },
    kind=Kind.ERROR,
)

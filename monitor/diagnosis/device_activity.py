"""What a device does while it works: bound by memory or by arithmetic, tensor cores or none.

Where nothing is idle this is the answer that is left. By the counters of the GPU where they are
measured, else by the names of the kernels in a trace; one number says how much of the chip is used.
On a CPU by the names of the operators.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import ComputeJson
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.signals.window import Window

Bound = Literal["memory", "compute", "neither"]
# Of the peak: a pipe that is used so much is what limits.
LIMITING: Final = 0.6
# A pipe used less than this does not matter.
USED: Final = 0.05
# Of the kernels' time: what takes this much stands for the whole.
MOST: Final = 0.5
# Dense peaks of 16-bit matrix products in FLOP/s, from the makers' data sheets, by the name.
PEAKS: Final[tuple[tuple[str, float], ...]] = (
    (r"\bG?B200\b", 2250e12),
    (r"\bH100 NVL\b", 835e12),
    (r"\bH100 PCIe\b", 756e12),
    (r"\bG?H[12]00\b", 989e12),
    (r"\bMI300X?\b", 1307e12),
    (r"\bA[18]00\b", 312e12),
    (r"\bL40S\b", 362e12),
    (r"\bA10G\b", 70e12),
    (r"\bA10\b", 125e12),
    (r"\bL4\b", 121e12),
    (r"\bV100\b", 125e12),
    (r"\bT4\b", 65e12),
)

# Of the operators those that take the most are named, and none that takes less than this.
MOST_OPERATORS: Final = 3
LEAST_OPERATOR: Final = 0.1
# What goes through the gradient's graph, around the operators.
_AUTOGRADS: Final = re.compile(r"(torch::)?autograd::.*|\w+Backward\d+|Optimizer\..*")
# What numbers the same operation in a compiled program.
_NUMBER: Final = re.compile(r"\.\d+$")

_FUSING: Final[dict[str, str]] = {"pytorch": "torch.compile", "jax": "jax.jit"}

NO_COUNTERS: Final = "no counters of the GPU's pipes, and no kernel names that say it"
NO_PIPES: Final = "a CPU computes, and no counters of its pipes are read"
NO_FLOPS: Final = "the operations of a step are not known, and no counter of the tensor cores"


def busy(window: Window) -> ComputeJson | None:
    """Return how a GPU or a CPU works; ``None`` where neither is known."""
    if window.device != "gpu":
        return _on_cpu(window)
    bound, said = _bound(window)
    tensor = _mean(window, m.GPU_TENSOR_ACTIVITY)
    cores = None if tensor is None else (tensor, tensor)
    kernels = None if window.gpu_trace is None else window.gpu_trace.kernels
    if cores is None and kernels is not None and (share := kernels["tensor_core_share"]):
        cores = share[0], share[1]
    # The share of the peak: by the operations of a step, else by the tensor counter.
    flops, peak, step = _flops_per_step(window), _peak(window), window.step_s
    used = None if tensor is None else window.job.measure(tensor, "ratio", "gpm")
    if flops is not None and peak is not None and step is not None and step.value:
        used = Measure(flops / step.value / peak, "ratio", "cost analysis", step.age_s)
    unknown = {} if bound else {"bound": NO_COUNTERS}
    unknown |= {} if cores else {"tensor_core_share": NO_COUNTERS}
    unknown |= {} if used else {"efficiency": NO_FLOPS}
    return ComputeJson(
        bound=bound,
        tensor_core_share=cores,
        efficiency=None if used is None else round(used.value, 4),
        efficiency_source=None if used is None else used.source,
        said=[*said, *_of_cores(cores)],
        unknown=unknown,
    )


def _on_cpu(window: Window) -> ComputeJson | None:
    """Return what operators compute most, by their own time; ``None`` where they are no answer."""
    trace = window.trace
    listed = () if trace is None else trace.operators
    whole_ns = sum(operator["total_ns"] for operator in listed)
    if trace is None or whole_ns < MOST * trace.total_ns:
        return None
    taken: dict[str, float] = {}
    for operator in listed:
        if _AUTOGRADS.fullmatch(operator["name"]):
            continue
        name = _NUMBER.sub("", operator["name"].removeprefix("aten::"))
        taken[name] = taken.get(name, 0.0) + operator["total_ns"] / whole_ns
    most = sorted(taken.items(), key=lambda item: -item[1])[:MOST_OPERATORS]
    named = ", ".join(f"{name} {part:.0%}" for name, part in most if part >= LEAST_OPERATOR)
    if not named:
        return None
    said = f"Operator time in a trace of {trace.seconds * 1e3:,.0f} ms: {named}."
    unknown = dict.fromkeys(("bound", "tensor_core_share", "efficiency"), NO_PIPES)
    return ComputeJson(said=[said], unknown=unknown)


def _mean(window: Window, metric: Metric) -> float | None:
    values = [gpu.means[metric] for gpu in window.gpus if metric in gpu.means]
    return sum(values) / len(values) if values else None


def _bound(window: Window) -> tuple[Bound | None, tuple[str, ...]]:
    dram, tensor, fp32 = (
        _mean(window, x) for x in (m.GPU_DRAM_ACTIVITY, m.GPU_TENSOR_ACTIVITY, m.GPU_FP32_ACTIVITY)
    )
    if dram is None:
        return _bound_by_names(window)
    arithmetic = max(tensor or 0.0, fp32 or 0.0)
    if max(dram, arithmetic) < LIMITING:
        said = f"Neither memory ({dram:.0%} of its peak) nor arithmetic ({arithmetic:.0%}) is full."
        return "neither", (said,)
    if dram >= arithmetic:
        return "memory", (f"Memory is the limit: {dram:.0%} of its peak bandwidth is used.",)
    return "compute", (f"Arithmetic is the limit: {arithmetic:.0%} of the cycles do some.",)


def _bound_by_names(window: Window) -> tuple[Bound | None, tuple[str, ...]]:
    kernels = None if window.gpu_trace is None else window.gpu_trace.kernels
    families = {} if kernels is None else kernels.get("families_ns", {})
    total = sum(families.values())
    named = total - families.get("unknown", 0)
    # Where most names say nothing, nothing is known of the whole.
    if not total or named < MOST * total:
        return None, ()
    work = sum(families.get(name, 0) for name in ("matmul", "convolution", "attention"))
    if work > MOST * total:
        return "compute", (
            f"{work / total:.0%} of the kernels' time is matrix products and convolutions.",
        )
    rest = (named - work) / total
    fusing = [_FUSING[name] for name in window.frameworks if name in _FUSING]
    left = f": fusing it ({fusing[0]}) is what is left" if fusing else ""
    said = (
        f"{rest:.0%} of the kernels' time is elementwise work and the like, which memory"
        f" limits{left}."
    )
    return "memory", (said,)


def _of_cores(cores: tuple[float, float] | None) -> tuple[str, ...]:
    if cores is None:
        return ()
    if cores[1] < USED:
        return ("The tensor cores are hardly used.",)
    low, high = cores
    share = f"{low:.0%}" if high - low < 0.01 else f"{low:.0%} to {high:.0%}"
    return (f"The tensor cores work in {share} of the kernels' time.",)


def _flops_per_step(window: Window) -> float | None:
    """Return the operations of a step; ``None`` with a loop, whose body is counted only once."""
    programs = window.job.facts.get("jax", {}).get("largest_executables") or []
    total, trace = 0.0, window.trace
    if trace is None:
        return None
    for program in programs:
        name = re.escape(str(program.get("name", "")).removeprefix("jit_"))
        per_step = trace.calls_per_step(rf"PjitFunction\({name}\)")
        if per_step is None or not per_step.value:
            continue
        if program.get("loops") or program.get("flops") is None or not program.get("whole", True):
            return None
        total += program["flops"] * per_step.value
    return total or None


def _peak(window: Window) -> float | None:
    peaks = [
        next((peak for like, peak in PEAKS if re.search(like, gpu.name or "")), None)
        for gpu in window.job.gpus
        if gpu.owned
    ]
    known = [peak for peak in peaks if peak is not None]
    return sum(known) if known and len(known) == len(peaks) else None

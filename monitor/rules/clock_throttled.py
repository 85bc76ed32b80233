"""The GPU lowers its clocks.

## What it sees
The driver lowers clocks for heat, power brake, power cap, or a group of GPUs. The worst GPU is
shown.

## Why it costs
Heat and power brake halve the clock or worse. The slowest GPU sets the pace.

## How to fix
Heat: check air flow, dust, fans, and room temperature. Power brake: check power supply and cables.

## When it is wrong
A loaded GPU at its power cap works as designed. Memory-bound kernels hardly slow down.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.rules import Need, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.recorded import SeenGpu

# The worse kinds first: what it is called, and how much it matters where no saving is known.
KINDS: Final[dict[Metric, tuple[str, Severity]]] = {
    m.GPU_THROTTLED_HARDWARE_HEAT: ("the hardware slows it down for heat", Severity.HIGH),
    m.GPU_THROTTLED_BRAKE: ("the power brake slows it down", Severity.HIGH),
    m.GPU_THROTTLED_HEAT: ("the driver slows it down for heat", Severity.MEDIUM),
    m.GPU_THROTTLED_SYNC: ("it is slowed down to the pace of its group", Severity.LOW),
    m.GPU_THROTTLED_POWER: ("its power cap slows it down", Severity.INFO),
}
# NVML: the hardware divides the clock by two or more; a kernel bound by memory loses little of it.
BY_HARDWARE: Final = frozenset({m.GPU_THROTTLED_HARDWARE_HEAT, m.GPU_THROTTLED_BRAKE})
BACK_LEAST, BACK_MOST = 0.25, 0.5
SHOWN: Final = {
    m.GPU_TEMPERATURE: "temperature",
    m.GPU_POWER: "power",
    m.GPU_POWER_LIMIT: "power cap",
    m.GPU_SM_CLOCK: "clock of the SMs",
}


def detect(window: Window) -> Verdict:
    """Find the GPU of the job that was held down the worst."""
    if not any(metric in gpu.means for gpu in window.gpus for metric in KINDS):
        return window.lacks(Need.GPU)
    for metric in KINDS:
        worst = max(window.gpus, key=lambda gpu: gpu.means.get(metric, 0.0))
        if worst.means.get(metric, 0.0) >= Severity.MEDIUM.least:
            return _found(window, worst, metric)
    return None


def _found(window: Window, gpu: SeenGpu, metric: Metric) -> Found:
    measure, (what, severity) = window.job.measure, KINDS[metric]
    # Full clocks would give back of the time in which the GPU computes.
    compute = window.share(Slice.COMPUTE)
    share = gpu.means.get(m.GPU_UTILISATION) if compute is None else compute.value
    gain = None
    if metric in BY_HARDWARE and share is not None:
        slow = gpu.means[metric] * share
        gain = Gain.between(BACK_LEAST * slow, BACK_MOST * slow)
    return Found(
        gain,
        (
            Evidence.of("clocks held down", measure(gpu.means[metric], "ratio", "nvml")),
            *(
                Evidence.of(name, measure(gpu.means[shown], shown.unit, "nvml"))
                for shown, name in SHOWN.items()
                if shown in gpu.means
            ),
        ),
        slice=Slice.COMPUTE,
        severity=None if gain else severity,
        title=f"GPU {gpu.index}: {what}",
    )


rule = Rule(
    title="The GPU lowers its clocks",
    fixes=both(
        "Find the reason with nvidia-smi -q -d PERFORMANCE. Then cool the GPU better, check its"
        " power supply, or raise its power cap with nvidia-smi -pl WATTS."
    ),
)

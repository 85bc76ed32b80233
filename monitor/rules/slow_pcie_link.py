"""A GPU's PCIe link is slower than its slot allows.

## What it sees
The link's highest generation and lanes during copies, and what GPU and slot allow. Without traffic
nothing is reported.

## Why it costs
Each generation, and each doubling of lanes, doubles the speed of copies, and of communication
without NVLink.

## How to fix
Check generation and bifurcation in the firmware. `nvidia-smi -q -d PERFORMANCE,PCIE` and `lspci
-vv` ("LnkSta: ... downgraded") show the link; growing replay counters mean a bad contact.

## When it is wrong
A job that copies little loses little. A virtual machine may hide the slot.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_MINUTE_S, SURELY
from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.core.pcie import limit
from whyidle.monitor.rules import Need, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.user_lines import of_slice

# A copy from pinned memory that reaches this part of the link's peak waits for nothing else
# (packet headers take a tenth, short copies never reach it).
AT_PEAK: Final = 0.6
_PINNED: Final = ("host to device", "device to host")


def detect(window: Window) -> Verdict:
    """Compare each link that is used with what it could be."""
    known = [gpu for gpu in window.job.gpus if gpu.is_held and None not in (_now(gpu), _best(gpu))]
    if not known or window.job.seconds < A_MINUTE_S:
        return window.lacks(Need.GPU, "its PCIe link under load")
    # In use, so that it does not rest in a low generation.
    slow = [gpu for gpu in known if _used(gpu) >= Severity.LOW.least and _ratio(gpu) < 1.0]
    if not slow:
        return None
    worst = min(slow, key=_ratio)
    gain, means, highest, info = _gain(window, worst), worst.means, worst.highest, worst.info
    speeds = {
        "the link carries": _now(worst),
        "it could carry": _best(worst),
        "into the GPU": means.get(m.GPU_PCIE_RX),
        "out of it": means.get(m.GPU_PCIE_TX),
    }
    now = f"{highest[m.GPU_PCIE_GENERATION]:.0f}.0 x{highest[m.GPU_PCIE_WIDTH]:.0f}"
    could = f"{info['pcie_generation_max']}.0 x{info['pcie_width_max']}"
    return Found(
        gain=gain,
        evidence=tuple(
            Evidence.of(name, window.job.measure(speed, "bytes/s", "nvml"))
            for name, speed in speeds.items()
            if speed is not None
        ),
        where=of_slice(window, Slice.EXPOSED_COPY),
        slice=Slice.EXPOSED_COPY,
        # A card that sits badly is worth a look, also where it costs nothing yet.
        severity=Severity.LOW if Severity.of_share(gain.low) is Severity.INFO else None,
        title=f"GPU {worst.index}: its PCIe link is {now}, and could be {could}",
    )


def _now(gpu: SeenGpu) -> float | None:
    return limit(gpu.highest.get(m.GPU_PCIE_GENERATION), gpu.highest.get(m.GPU_PCIE_WIDTH))


def _best(gpu: SeenGpu) -> float | None:
    return limit(gpu.info.get("pcie_generation_max"), gpu.info.get("pcie_width_max"))


def _ratio(gpu: SeenGpu) -> float:
    now, best = _now(gpu), _best(gpu)
    return now / best if now and best else 1.0


def _used(gpu: SeenGpu) -> float:
    """Return the part of what the link carries at best, in the busier direction."""
    traffic = max(gpu.means.get(m.GPU_PCIE_RX, 0.0), gpu.means.get(m.GPU_PCIE_TX, 0.0))
    return min(1.0, traffic / (_now(gpu) or traffic or 1.0))


def _gain(window: Window, gpu: SeenGpu) -> Gain:
    """Return what copies give back at full speed: those that nothing covers, if the link limits."""
    saved, trace = 1.0 - _ratio(gpu), window.gpu_trace
    if trace is None:
        return Gain.between(0.0, saved * _used(gpu))
    pinned = [trace.detail(Slice.EXPOSED_COPY, direction) for direction in _PINNED]
    # Whether copies from pinned memory are as fast as the link.
    speeds = [
        copy["gb_per_s"] * 1e9
        for direction in _PINNED
        for copy in trace.copies(direction)
        if copy["memory"] == "pinned" and copy["gb_per_s"] is not None
    ]
    is_at_peak = max(speeds, default=0.0) >= AT_PEAK * (_now(gpu) or 0.0) > 0.0
    low = SURELY * saved * sum(x.value for x in pinned if x is not None) * is_at_peak
    return Gain.between(low, saved * sum(map(trace.exposed, _PINNED)))


rule = Rule(
    title="A GPU's PCIe link is slower than its slot allows",
    fixes=both(
        "Reseat the card, and check riser, slot and firmware settings. nvidia-smi -q and lspci"
        " -vv show the link."
    ),
    device="gpu",
)

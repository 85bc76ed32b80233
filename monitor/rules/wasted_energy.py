"""Energy is used while the GPU does nothing.

## What it sees
GPU power and idle time, in joules a step, and in money if a price is set (`WHYIDLE_KWH_PRICE`,
`WHYIDLE_GPU_HOUR_PRICE`, `WHYIDLE_CURRENCY`).

## Why it costs
A GPU that is rented by the hour and idle half of the time doubles the cost of a step.

## How to fix
Each finding about time gives its watts, joules and money a step.

## When it is wrong
This is an upper bound: a waiting GPU draws less. Host, fans and cooling are not included.

## Documents
D3 trend 3 (energy per training run), and its target of 85% utilization.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.core.prices import Prices
from whyidle.monitor.rules import Kind, Need, Rule, Severity, Verdict, Window, both
from whyidle.monitor.signals.gain import busy
from whyidle.monitor.signals.trust import counted

# D3 wants more than 85% utilisation.
LEAST: Final = 0.15


def detect(window: Window) -> Verdict:
    """Reckon what goes into idle time."""
    job, trace, step, said = window.job, window.gpu_trace, window.step_s, counted(window.job)
    if not any(gpu.is_held for gpu in job.gpus):
        return window.lacks(Need.GPU, "which of them the job uses")
    watts = window.needed(window.watts, Need.GPU, "the power that each draws")
    # How much of the time the GPUs surely do nothing.
    idle = None if said is None else job.measure(1.0 - said.most, "ratio", "nvml")
    if trace is not None:
        idle = trace.measure(1.0 - busy(trace), "ratio")
    idle = window.needed(idle, Need.TRACE)
    if idle.value < LEAST:
        return None
    lost = watts.value * idle.value
    joules = None if step is None else job.measure(watts.value * step.value, "J", "nvml")
    # A price is of watts that flow for an hour.
    prices, gpus = Prices.here(), len(window.gpus) * idle.value
    money, _ = prices.of(watts.value * 3600.0 * idle.value, gpus)
    unit = f"{prices.currency} an hour".strip()
    measures = {
        "power drawn": watts,
        "GPU idle": idle,
        "into idle time, at most": job.measure(lost, "W", "nvml"),
        "energy a step": joules,
        "of that, at most": joules and joules.times(idle.value),
        "money for idle time, at most": None
        if money is None
        else job.measure(money, unit, "prices"),
    }
    return Found(gain=None, evidence=Evidence.known(measures), severity=Severity.INFO)


rule = Rule(
    title="Energy is used while the GPU does nothing",
    documents=("D3 trend 3",),
    fixes=both("Remove what makes the GPU wait: each finding says what it costs."),
    device="gpu",
    kind=Kind.INFORMATION,
)

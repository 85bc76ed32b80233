"""Energy goes into time in which the GPU does nothing.

## What it sees
The power that the job's GPUs draw, and the share of the time in which they do nothing: by a trace,
or by what the counters surely say. It says what that is in joules a step, and in money where a
price is set (`WHYIDLE_KWH_PRICE`, `WHYIDLE_GPU_HOUR_PRICE`, `WHYIDLE_CURRENCY`).

## Why it costs
A GPU that waits draws less than one that works, but it draws, and it is rented, or paid off, by the
hour all the same: who idles half of the time pays for the hour twice what each step needs.

## How to fix
Remove what makes the GPU wait: each finding about time says what it costs in watts, and in joules
and money a step.

## When it is wrong
What goes into idle time is given as at most so much: it is reckoned at the mean power, and a GPU
that waits draws less than one that works. The power is that of the GPUs alone: the host, its fans
and the cooling of the building come on top.

## Documents
D3 trend 3 (energy per training run), and its target of 85% utilisation.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import Evidence, Fix, Found, Need, Severity, Verdict
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.prices import Prices
from whyidle.monitor.rules import Kind, Rule
from whyidle.monitor.signals.gain import busy
from whyidle.monitor.signals.trust import counted
from whyidle.monitor.signals.window import Window

# D3 wants more than 85% utilisation.
LEAST: Final = 0.15
HOUR: Final = 3600.0


def detect(window: Window) -> Verdict:
    """Reckon what goes into idle time."""
    if not any(gpu.is_held for gpu in window.job.gpus):
        return window.lacks(Need.GPU, "which of them the job uses")
    watts, idle = window.watts, _idle(window)
    if watts is None:
        return window.lacks(Need.GPU, "the power that each draws")
    if idle is None:
        return window.lacks(Need.TRACE)
    if idle.value < LEAST:
        return None
    return Found(gain=None, evidence=tuple(_evidence(window, watts, idle)), severity=Severity.INFO)


def _idle(window: Window) -> Measure | None:
    """Return how much of the time the GPUs surely do nothing."""
    if window.gpu_trace is not None:
        return window.gpu_trace.measure(1.0 - busy(window.gpu_trace), "ratio")
    said = counted(window.job)
    return None if said is None else window.job.measure(1.0 - said.most, "ratio", "nvml")


def _evidence(window: Window, watts: Measure, idle: Measure) -> list[Evidence]:
    job, step = window.job, window.step_s
    found = [
        Evidence.of("power drawn", watts),
        Evidence.of("GPU idle", idle),
        Evidence.of("into idle time, at most", job.measure(watts.value * idle.value, "W", "nvml")),
    ]
    if step is not None:
        each = watts.value * step.value
        found += [
            Evidence.of("energy a step", job.measure(each, "J", "nvml")),
            Evidence.of("of that, at most", job.measure(each * idle.value, "J", "nvml")),
        ]
    prices, gpus = Prices.here(), sum(gpu.owned for gpu in job.gpus)
    lost, _ = prices.of(watts.value * HOUR * idle.value, gpus * idle.value)
    if lost is not None:
        unit = f"{prices.currency} an hour".strip()
        found.append(Evidence.of("money for idle time, at most", job.measure(lost, unit, "prices")))
    return found


_FIX: Final = Fix("Remove what makes the GPU wait: each finding says what it costs.")

rule = Rule(
    title="Energy goes into time in which the GPU does nothing",
    documents=("D3 trend 3",),
    fixes={"pytorch": _FIX, "jax": _FIX},
    device="gpu",
    detect=detect,
    kind=Kind.INFORMATION,
)

"""A mode that is made for finding errors is on, and slows each step.

## What it sees
The agent looks once a second whether autograd's anomaly detection is on, and whether JAX's options
`jax_debug_nans`, `jax_debug_infs` or `jax_disable_jit` are. A trace of a job on a CPU shows the
checks for NaN, and with that what the mode takes; elsewhere no gain is said.

## Why it costs
Anomaly detection keeps the stack of Python for each operation of the forward pass, 35 to 135 us
each (PyTorch 2.13, on a CPU), and looks through each gradient for NaN, for which the host waits.
`jax_debug_nans` and `jax_debug_infs` copy each result of a compiled function to the host and look
through it there, and with the first nothing is donated. With `jax_disable_jit` nothing is compiled:
each operation is launched by itself.

## How to fix
Leave it off, and turn it on when a loss is no number: from the last checkpoint, for a few steps.
`torch.isfinite(loss)` every hundred steps says when that is.

## When it is wrong
While an error is being looked for, that is the price. What `with jax.debug_nans(True)` or
`with jax.disable_jit()` sets is of one thread, and not seen.

## Documents
Beyond the documents: they assume jobs that are not being debugged.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import (
    Confidence,
    Evidence,
    Fix,
    Found,
    Framework,
    Gain,
    Need,
    Severity,
    Verdict,
)
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.user_lines import asking
from whyidle.monitor.signals.window import Window

# By the names of the agent's facts: what switches it on, and whose it is.
MODES: Final[dict[str, tuple[str, Framework]]] = {
    "anomaly_detection": ("torch.autograd.set_detect_anomaly", "pytorch"),
    "debug_nans": ("jax_debug_nans", "jax"),
    "debug_infs": ("jax_debug_infs", "jax"),
    "disable_jit": ("jax_disable_jit", "jax"),
}
# On for less of the time, a person looks at a few steps.
LEAST: Final = 0.05
# One stack kept: 35 us at the top of a program, 5 us more for each call that it lies under; 20 are
# many. One for each operation that is differentiated, whose gradient is then looked through.
STACK_S: Final = (35e-6, 135e-6)
_CHECK: Final = r"aten::isnan"
_CHECKS: Final = r"aten::isnan|aten::_is_any_true"
_ASKS: Final = re.compile(r"(set_)?detect_anomaly\(|debug_nans|debug_infs|disable_jit")


def detect(window: Window) -> Verdict:
    """Judge what the frameworks say is on."""
    known = {name: window.fact(name) for name in MODES}
    if all(value is None for value in known.values()):
        return window.lacks(Need.INSIDE)
    on = [name for name, value in known.items() if value is True]
    often = window.job.mean(m.PROCESS_DEBUG_MODES)
    if not on or (often is not None and often.value < LEAST):
        return None
    taken = _taken(window) if on == ["anomaly_detection"] else None
    gain, evidence = taken or (None, ())
    return Found(
        gain=gain,
        evidence=(*_named(window, on), *evidence),
        where=asking(window.job, _ASKS),
        severity=None if gain else Severity.MEDIUM,
        confidence=Confidence.INFERRED if gain else Confidence.HINTED,
        frameworks=tuple(dict.fromkeys(MODES[name][1] for name in on)),
    )


def _named(window: Window, on: list[str]) -> list[Evidence]:
    age, seconds = window.job.age_s, window.job.seconds
    return [Evidence("switched on", MODES[name][0], "", "agent", age, seconds) for name in on]


def _taken(window: Window) -> tuple[Gain, tuple[Evidence, ...]] | None:
    """Return what anomaly detection takes, where a trace shows its checks.

    On a GPU a check waits for the work before it, which is not lost.
    """
    trace = window.trace
    if trace is None or window.device != "cpu":
        return None
    checks = sum(call["count"] for call in trace.calls(_CHECK))
    if not checks:
        return None
    looked = sum(call["total_ns"] for call in trace.calls(_CHECKS)) / trace.total_ns
    least, most = (looked + checks * each * 1e9 / trace.total_ns for each in STACK_S)
    return Gain.between(least, most), (
        Evidence.of("looking for NaN in gradients", trace.measure(looked, "ratio")),
        Evidence.of("gradients looked through", trace.measure(checks, "count")),
    )


rule = Rule(
    title="A debugging mode is switched on",
    documents=("beyond the documents",),
    fixes={
        "pytorch": Fix(
            "Leave it off; on for a few steps, from a checkpoint, when a loss is no number.",
            "torch.autograd.set_detect_anomaly(False)",
        ),
        "jax": Fix(
            "Leave them off; on for a few steps, from a checkpoint, when a loss is no number. The "
            "variables JAX_DEBUG_NANS, JAX_DEBUG_INFS and JAX_DISABLE_JIT set them, too.",
            """\
jax.config.update("jax_debug_nans", False)
jax.config.update("jax_debug_infs", False)
jax.config.update("jax_disable_jit", False)""",
        ),
    },
    detect=detect,
)

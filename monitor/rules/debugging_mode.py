"""A mode for finding errors is on, and slows each step.

## What it sees
Anomaly detection, a profiler, `jax_debug_nans`, `jax_debug_infs`, `jax_disable_jit`,
`jax_check_tracer_leaks`, `jax_enable_checks` or `jax_log_compiles`; and variables such as
`CUDA_LAUNCH_BLOCKING`, `PYTORCH_NO_CUDA_MEMORY_CACHING`, `TORCH_DISTRIBUTED_DEBUG=DETAIL`,
`NCCL_BLOCKING_WAIT`, `PYTHONTRACEMALLOC`. Only anomaly detection gets a gain.

## Why it costs
Anomaly detection adds 35 to 135 us to each operation. `jax_debug_nans` and `jax_debug_infs` search
results on the host, and the first stops donation.

## How to fix
Check `torch.isfinite(loss)` every hundred steps instead. Unset variables before the start. Schedule
a profiler for a few steps.

## When it is wrong
`with jax.debug_nans(True)` and `with jax.disable_jit()` are not seen. A variable set in the job may
come too late to matter.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_MINUTE_S, NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Gain
from whyidle.monitor.core.settings import Purpose
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Verdict, Window
from whyidle.monitor.rules._settings import finding, is_known, switched_on

# What the metric counts, and the facts say only of their last seconds.
COUNTED: Final = frozenset(
    {"anomaly_detection", "debug_nans", "debug_infs", "disable_jit", "own_profiler"}
)
ADVICE: Final = (
    "Turn it off. To find where a loss becomes NaN, turn it on for a few steps from a checkpoint."
)
# One stack kept: 35 us at the top of a program, 5 us more for each call that it lies under; 20 are
# many. One for each operation that is differentiated, whose gradient is then looked through.
STACK_S: Final = (35e-6, 135e-6)


def detect(window: Window) -> Verdict:
    """Judge what the frameworks say is on, and what the job was started with."""
    on, trace = switched_on(window, Purpose.DEBUGGING), window.trace
    often = window.job.mean(m.PROCESS_DEBUG_MODES)
    # On for less of the time, a person looks at a few steps.
    if often is not None and often.value < Severity.MEDIUM.least:
        on = [each for each in on if each.setting.fact not in COUNTED]
    if not on:
        return None if is_known(window, Purpose.DEBUGGING) else window.lacks(Need.INSIDE)
    facts = [each.setting.fact for each in on]
    # One that is on nearly all of so long was forgotten.
    always = often is not None and often.value >= NEARLY_ALL and window.job.seconds >= A_MINUTE_S
    forgotten = facts == ["own_profiler"] and always
    found = finding(window, on, ADVICE, Severity.MEDIUM if forgotten else None)
    # What anomaly detection takes a trace shows by its checks; on a GPU a check waits for the work
    # before it, which is not lost.
    is_checked = facts == ["anomaly_detection"] and window.device == "cpu"
    if trace is None or not is_checked or not (checks := trace.count(r"aten::isnan")):
        return found
    looked = trace.in_calls(r"aten::isnan|aten::_is_any_true")
    least, most = (looked + checks * each * 1e9 / trace.total_ns for each in STACK_S)
    return replace(
        found,
        gain=Gain.between(least, most),
        evidence=(
            *found.evidence,
            Evidence.of("looking for NaN in gradients", trace.measure(looked, "ratio")),
            Evidence.of("gradients looked through", trace.measure(checks, "count")),
        ),
        severity=None,
        confidence=Confidence.INFERRED,
    )


rule = Rule(
    title="A debugging mode is switched on",
    fixes={
        "pytorch": Fix(ADVICE, "torch.autograd.set_detect_anomaly(False)"),
        "jax": Fix(
            f"{ADVICE} The variables JAX_DEBUG_NANS, JAX_DEBUG_INFS, JAX_DISABLE_JIT set it too.",
            """\
jax.config.update("jax_debug_nans", False)
jax.config.update("jax_debug_infs", False)
jax.config.update("jax_disable_jit", False)""",
        ),
    },
)

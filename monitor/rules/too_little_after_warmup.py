"""Only the warm-up was measured, and no training yet.

## What it sees
Fewer than ten steps since the job began, or first compilations during the measurement.

## Why it costs
First steps take up to a thousand times as long.

## How to fix
Measure samples a second, and repeat earlier measurements.

## When it is wrong
With steps of a minute, a few are enough.

## Documents
D4 summary: measure after the warm-up, in samples a second. It holds.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.amounts import A_MINUTE_S, AGAIN
from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Slice, Verdict, Window

# As the document has it.
LEAST_STEPS: Final = 10


def detect(window: Window) -> Verdict:
    """Judge how much of the job was seen."""
    trace, job = window.trace, window.job
    compiling = None if trace is None else trace.share(Slice.IDLE_COMPILE)
    # A function that is compiled more often is compiled again and again: another fault.
    again = any(each.count - each.cached >= AGAIN for each in job.compiled)
    if compiling is not None and compiling.value >= Severity.MEDIUM.least and not again:
        evidence = Evidence.of("compiling in the trace", compiling)
    elif window.kind == "file":
        # The user who records a trace chooses how many steps are in it.
        return None if trace is not None else window.lacks(Need.TRACE)
    else:
        steps = window.needed(job.steps, window.of_steps)
        if steps >= LEAST_STEPS or (window.step_s and window.step_s.value >= A_MINUTE_S):
            return None
        evidence = Evidence.of("steps since the job began", job.measure(steps, "count"))
    return Found(gain=None, evidence=(evidence,), severity=Severity.INFO)


rule = Rule(
    title="Only the warm-up was measured",
    documents=("D4 summary",),
    fixes={
        "jax": Fix(
            "Start timing after ten steps, and stop when the device is done.",
            """\
for number in range(110):
    if number == 10:
        jax.block_until_ready(params)
        began = time.perf_counter()
    params = step(params, x)
jax.block_until_ready(params)
print(f"{100 * len(x) / (time.perf_counter() - began):.0f} samples/s")""",
        ),
        "pytorch": Fix(
            "Start timing after ten steps, and stop when the device is done.",
            """\
for number in range(110):
    if number == 10:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
    train_step(x)
if torch.cuda.is_available():
    torch.cuda.synchronize()
print(f"{100 * len(x) / (time.perf_counter() - began):.0f} samples/s")""",
        ),
    },
    kind=Kind.INFORMATION,
)

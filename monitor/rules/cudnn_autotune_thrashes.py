"""cuDNN tries its convolutions again and again, because the shapes keep changing.

## What it sees
`torch.backends.cudnn.benchmark` is on, and the host waits a millisecond or more in a traced
convolution.

## Why it costs
cuDNN times every algorithm for each input shape: 2.3 s instead of 0.02 in PyTorch issue 2759.

## How to fix
`drop_last=True` avoids the smaller last batch.

## When it is wrong
The first steps of every job do this, too.

## Documents
Beyond the five documents. It was not tried on a GPU.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.core.amounts import AGAIN
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Verdict, Window
from whyidle.monitor.signals.user_lines import asking

_CONVOLUTIONS: Final = r"aten::(cudnn_convolution\w*|miopen_convolution\w*|convolution_backward)"
# How algorithms are timed; a step of a loop that times itself has one or two of these.
_WAITS: Final = r"(cuda|hip)EventSynchronize"
# A convolution that is only launched takes the host 0.02 to 0.1 ms, as any operation does.
LAUNCHED_NS: Final = 100_000
TRIED_NS: Final = 1_000_000
_ASKS: Final = re.compile(r"cudnn\.benchmark\s*=|benchmark\s*=\s*True")


def detect(window: Window) -> Verdict:
    """Judge how long the host is in convolutions."""
    benchmark = window.needed(window.fact("cudnn_benchmark"), Need.INSIDE)
    if benchmark is not True or window.device != "gpu":
        return None
    trace = window.whole_steps_on_gpu()
    calls, waits = trace.calls(_CONVOLUTIONS), trace.calls_per_step(_WAITS)
    count, took = sum(c["count"] for c in calls), sum(c["total_ns"] for c in calls)
    if not count or took < count * TRIED_NS or waits is None or waits.value < AGAIN:
        return None
    waited = sum(call["total_ns"] for call in trace.calls(_WAITS))
    beyond = took - count * LAUNCHED_NS
    low, high = (min(1.0, ns / trace.total_ns) for ns in (min(waited, beyond), beyond))
    if high < Severity.LOW.least:
        return None
    return Found(
        gain=Gain.between(low, high),
        evidence=(
            Evidence.of("host in one convolution", trace.measure(took / count / 1e9, "s")),
            Evidence.of("waits for events", waits),
        ),
        where=asking(window.job, _ASKS),
        confidence=Confidence.INFERRED,
    )


rule = Rule(
    title="cuDNN searches for algorithms again: input shapes change",
    fixes={
        "pytorch": Fix(
            "Turn it off, or pad inputs to a few sizes. Drop the last, smaller batch.",
            "torch.backends.cudnn.benchmark = False",
        )
    },
    only=("pytorch",),
)

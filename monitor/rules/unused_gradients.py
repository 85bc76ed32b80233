"""Gradients are computed that no optimizer uses.

## What it sees
Traced backward passes compute gradients for more parameters than all optimizers have.

## Why it costs
The unused backward pass takes twice as long as the forward pass, and keeps activations.

## How to fix
If nothing below that part is trained, run it under `torch.no_grad()`, and in `eval()` compute its
outputs once for all epochs. Otherwise only its own weights' gradients are saved.

## When it is wrong
A later phase's optimizer is not known yet. Flat copies (DeepSpeed, Megatron) are not judged. The
norm for clipping changes.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code.source import calls, last
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.operators import NODE, PARAMETER, optimizers_of, tensors_of
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import asking, making

# For so many times the parameters that are updated; some tensors of a batch may ask for one, too.
LEAST_TIMES: Final = 1.5
LEAST_MORE: Final = 4
# Where so many of them are of no use most of the work is, as in the pair. Else it may be that of a
# few scales, which are many and small.
MOST_UNUSED: Final = 0.8
# An agent names no more optimizers than these.
MOST_OPTIMIZERS: Final = 8
# What comes back of a backward pass (``benchmarks/step_costs.py``): where something below has to be
# reached 0.28 to 0.55 of it, else 0.93 to 1.14, as no activations are kept then.
BACK: Final = (0.28, 1.14)
# On a GPU it is as long as two forward passes, of all that is computed, if nothing else is.
ON_GPU: Final = 0.6
# The nodes of a pass back, of all of it, where the samples do not tell.
OF_NODES: Final = (0.7, 1.2)
# What a pass back begins with; a checkpoint begins others within it.
_BEGINS: Final = r"aten::ones_like"
# Whose optimizer holds other tensors than the parameters, and a pass that is given its gradient.
_FLAT: Final = re.compile(r"(?i)deepspeed|megatron")
_GIVEN: Final = re.compile(
    r"(?<!accelerator)(?<!fabric)(?<!engine)\.backward\(\s*(?!\)|retain|create|inputs)\S"
)


def detect(window: Window) -> Verdict:
    """Judge how many of the gradients are of use."""
    trace, optimizers = window.needed(window.trace, Need.TRACE), optimizers_of(window)
    tensors = sum(map(tensors_of, optimizers))
    # An optimizer may update other tensors than those that get gradients.
    wraps = str(window.fact("parallel") or "")
    is_plain = (window.world_size or 1) < 2 or wraps == "DistributedDataParallel"
    named = _FLAT.search(f"{window.job.command} {wraps}") or asking(window.job, _FLAT)
    is_known = is_plain and not named and len(optimizers) < MOST_OPTIMIZERS
    if not tensors or not is_known:
        return window.lacks(Need.INSIDE, "all optimizers, and the parameters that they update")
    passes, brought = trace.count(_BEGINS), trace.count(PARAMETER)
    # Of one more pass the trace may show the end alone.
    least_brought = (passes + 1) * max(LEAST_TIMES * tensors, tensors + LEAST_MORE)
    if not passes or brought < least_brought:
        return None
    if trace.calls(r"CheckpointFunctionBackward") or asking(window.job, _GIVEN):
        return None
    least, most = _back(window, trace)
    is_most = 1 - passes * tensors / brought >= MOST_UNUSED
    measure = window.job.measure
    return Found(
        gain=Gain.between(BACK[0] * least if is_most else 0.0, BACK[1] * most),
        evidence=(
            Evidence.of(
                "parameters that a backward pass has gradients for",
                trace.measure(brought / passes, "count"),
            ),
            Evidence.of("parameters that optimizers update", measure(tensors, "count")),
        ),
        where=making(window.job, (str(each.get("kind")) for each in optimizers)),
        slice=Slice.COMPUTE,
        severity=None if is_most and least else Severity.LOW,
        confidence=Confidence.INFERRED,
    )


def _back(window: Window, trace: Traced) -> tuple[float, float]:
    """Return the least and the most of the time in backward passes."""
    if window.device == "gpu":
        return 0.0, ON_GPU * trace.taken(Slice.COMPUTE)
    account, seen = window.host, 0.0
    if account is not None:
        # Where the main thread is at the user's line that calls one.
        lines = ((row.share, row.frames[0]) for row in account.rows if row.frames)
        seen = sum(
            share
            for share, line in lines
            if any(last(call) == "backward" for call in calls(line.file, line.line))
        )
    if account is None or not seen:
        low, high = (factor * trace.in_calls(NODE) for factor in OF_NODES)
        return low, min(1.0, high)
    error = account.error(seen)
    return max(0.0, seen - error), min(1.0, seen + error)


rule = Rule(
    title="Gradients are computed that no optimizer uses",
    fixes={
        "pytorch": Fix(
            "Call requires_grad_(False) on the parts that are not trained.",
            """\
model.encoder.requires_grad_(False)  # before the optimizer is made
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = your_optimizer(trained, **as_before)""",
        )
    },
    only=("pytorch",),
)

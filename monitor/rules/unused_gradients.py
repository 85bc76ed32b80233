"""Gradients are computed of parameters that no optimizer updates.

## What it sees
In a trace, to how many parameters each backward pass brings a gradient, beside the number of those
that all optimizers together have.

## Why it costs
An encoder that is only to be used, before a head that is trained, asks for gradients like any other
part of a model: the backward pass goes through all of it, twice the work of its forward pass, and
all its activations are kept until then. What comes out lies in `.grad`, and nobody reads it.

## How to fix
Say so before training: `encoder.requires_grad_(False)`. Where gradients still have to pass through
a part, to what is trained below it, its own weights' are left out by that. Where nothing below is
trained, its forward pass may run under `torch.no_grad()` as well, and in `eval()` its outputs can
be computed once for all epochs.

## When it is wrong
An optimizer that has not stepped yet is not known: one that comes in for the second half of the
training needs them then, and none before. Updates by hand, without an optimizer, are not seen:
where none is known nothing is said, nor beside so many that not all are. Who clips the norm of all
gradients clips by these, too: without them the norm is another one.

## Documents
Beyond the documents.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.core.finding import (
    Confidence,
    Evidence,
    Fix,
    Found,
    Gain,
    Need,
    Place,
    Verdict,
)
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.operators import optimizers_of, tensors_of
from whyidle.monitor.signals.source import calls, last
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import asking
from whyidle.monitor.signals.window import Window

# For so many times the parameters that are updated; some tensors of a batch may ask for one, too.
LEAST_TIMES: Final = 1.5
LEAST_MORE: Final = 4
# An agent names no more optimizers than these.
MOST_OPTIMIZERS: Final = 8
# What comes back of a backward pass (``benchmarks/step_costs.py``): where something below has to be
# reached 0.28 to 0.55 of it, else 0.93 to 1.14, as no activations are kept then.
BACK: Final = (0.28, 1.14)
# On a GPU it is as long as two forward passes, of all that is computed.
ON_GPU: Final = 0.6
_BROUGHT: Final = r"torch::autograd::AccumulateGrad"
# What a pass back begins with.
_BEGINS: Final = r"aten::ones_like"
_NODES: Final = r"autograd::engine::evaluate_function: .*"


def detect(window: Window) -> Verdict:
    """Judge how many of the gradients are of use."""
    if window.frameworks and not window.uses("pytorch"):
        return None
    trace, optimizers = window.trace, optimizers_of(window)
    if trace is None:
        return window.lacks(Need.TRACE)
    tensors = sum(map(tensors_of, optimizers))
    if not tensors or len(optimizers) >= MOST_OPTIMIZERS:
        return window.lacks(Need.INSIDE, "all optimizers, and what they update")
    passes, brought = trace.count(_BEGINS), trace.count(_BROUGHT)
    if not passes:
        return None
    # Of one more pass the trace may show the end alone.
    if brought < (passes + 1) * max(LEAST_TIMES * tensors, tensors + LEAST_MORE):
        return None
    least, most = _back(window, trace)
    part = max(0.0, 1 - passes * tensors / brought)
    measure = window.job.measure
    return Found(
        gain=Gain.between(BACK[0] * part * least, BACK[1] * part * most),
        evidence=(
            Evidence.of(
                "parameters that a backward pass has gradients for",
                trace.measure(brought / passes, "count"),
            ),
            Evidence.of("parameters that optimizers update", measure(tensors, "count")),
        ),
        where=_where(window),
        slice=Slice.COMPUTE,
        confidence=Confidence.INFERRED,
    )


def _back(window: Window, trace: Traced) -> tuple[float, float]:
    """Return the least and the most of the time in backward passes."""
    if window.device == "gpu":
        work = trace.share(Slice.COMPUTE)
        return (ON_GPU * (0.0 if work is None else work.value),) * 2
    account = window.host
    seen = 0.0 if account is None else sum(r.share for r in account.rows if _is_back(r))
    if account is None or not seen:
        return (min(1.0, trace.in_calls(_NODES)),) * 2
    error = account.error(seen)
    return max(0.0, seen - error), min(1.0, seen + error)


def _is_back(row: HostRow) -> bool:
    """Tell whether the main thread is at the user's line that calls a backward pass."""
    if not row.frames:
        return False
    line = row.frames[0]
    return any(last(call) == "backward" for call in calls(line.file, line.line))


def _where(window: Window) -> tuple[Place, ...]:
    kinds = "|".join(re.escape(str(each.get("kind"))) for each in optimizers_of(window))
    return asking(window.job, re.compile(rf"\b({kinds})\("))


rule = Rule(
    title="Gradients are computed of parameters that no optimizer updates",
    documents=("beyond the documents",),
    fixes={
        "pytorch": Fix(
            "Leave them out: requires_grad_(False) for all that is only used.",
            """\
model.encoder.requires_grad_(False)  # before the optimizer is made
optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)""",
        ),
    },
    detect=detect,
)

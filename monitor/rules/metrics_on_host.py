"""Metrics are computed on the host while the steps wait.

## What it sees
Main-thread samples in scoring code (scikit-learn, torchmetrics, torcheval, ignite, evaluate) within
the steps.

## Why it costs
A library takes a millisecond, and reads values from the device. `compute()` of torchmetrics
processes everything so far.

## How to fix
In the steps the loss is enough.

## When it is wrong
In reinforcement or metric learning a score may be needed.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from whyidle.monitor.rules import Fix, Rule
from whyidle.monitor.rules._kinds import phase
from whyidle.monitor.signals.phases import Phase

# A sum of hits stays, which is a launch or two: less than a tenth of a score that takes 1 ms.
detect = phase(Phase.METRICS, left=0.1)

rule = Rule(
    title="Metrics are computed on the host while the steps wait",
    fixes={
        "pytorch": Fix(
            "Add up on the device, and compute the score at the end of an epoch. torchmetrics:"
            " metric.to(device), update() each step, compute() once.",
            """\
hits += (logits.argmax(1) == labels).sum()  # stays on the device
if is_last_batch:
    print("accuracy", hits.item() / samples)""",
        ),
        "jax": Fix(
            "Return the sums from the compiled step, and score once per epoch.",
            """\
# in the jitted step, and not read
hits = hits + (logits.argmax(1) == labels).sum()
if is_last_batch:
    print("accuracy", float(hits) / samples)""",
        ),
    },
)

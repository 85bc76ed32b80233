"""Logging takes time in every step.

## What it sees
Stack samples of the main thread in logging code: W&B, TensorBoard, MLflow and others, Python's
`logging` and `csv`, progress bars, plots, and lines of yours that print, write to a file, or flush
one. If such a line waits to read a loss from the device, that is `per_step_sync`.

## Why it costs
Each call formats, locks and writes in the thread that launches the steps. `flush` and `fsync` wait
for a disk each time; a plot takes a tenth of a second; `wandb.watch` makes a histogram of every
gradient.

## How to fix
Log every hundredth step, and keep a running sum of the others on the device: it says more than one
step. Let the file buffer, and flush it at the end of an epoch. Plot elsewhere, from the log.

## When it is wrong
A job with very short steps may log every hundredth and still be reported: then log by time. What a
library writes in its own thread is not the main thread's time, and not seen.

## Documents
Beyond the documents: they only print a step's loss.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.rules import Fix, Rule, Window
from whyidle.monitor.rules._kinds import phase
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.user_lines import asking

_WATCHES: Final = re.compile(r"wandb\.watch\(")


def _watched(window: Window, finding: Found) -> Found:
    """Name what watches gradients: its hooks run in the pass back, below no line of the user's."""
    watched = asking(window.job, _WATCHES)[:1]
    seen = (
        Evidence("gradients are watched", f"{place.file}:{place.line}", "", "source")
        for place in watched
    )
    return replace(finding, evidence=(*finding.evidence, *seen), where=(*finding.where, *watched))


_CODE: Final = """\
total += {loss}  # stays on the device
if step % 100 == 0:
    entry = {{"step": step, "loss": float(total) / 100}}
    log.write(json.dumps(entry) + "\\n")
    total = 0.0"""
_TEXT: Final = (
    "Log every hundredth step, with the mean of the steps between. Let the file buffer: no"
    " flush, no fsync."
)

# Of a hundred times one is left.
detect = phase(Phase.LOGGING, left=0.01, also=_watched)

rule = Rule(
    title="Logging takes time in every step",
    fixes={
        "pytorch": Fix(
            f"{_TEXT} wandb.watch: log=None, or log_freq=1000.", _CODE.format(loss="loss.detach()")
        ),
        "jax": Fix(_TEXT, _CODE.format(loss="loss")),
    },
)

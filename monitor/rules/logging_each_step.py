"""Logging takes time in every step.

## What it sees
Main-thread samples in W&B, TensorBoard, `logging`, progress bars, plots, and lines that print or
write files. Waiting for a loss is `per_step_sync`.

## Why it costs
`flush` and `fsync` wait for a disk, a plot takes a tenth of a second, `wandb.watch` makes a
histogram of every gradient.

## How to fix
Keep a running sum on the device. Plot elsewhere, from the log.

## When it is wrong
With very short steps, log by time.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from whyidle.monitor.code.trains import trains_at
from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.rules import Fix, Rule, Window, both
from whyidle.monitor.rules._kinds import phase
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.user_lines import asking

_WATCHES: Final = re.compile(r"wandb\.watch\((?!.*\blog\s*=\s*None)")


def _watched(window: Window, finding: Found) -> Found:
    """Name what watches gradients: its hooks run in the pass back, below no line of the user's."""
    watched = asking(window.job, _WATCHES)[:1]
    seen = (
        Evidence("gradients are watched", f"{place.file}:{place.line}", "", "source")
        for place in watched
    )
    # Below a line that trains its hooks run; another one logs, and has to come less often.
    hooks = all(trains_at(CodeLine(x.file, x.line, x.function)) for x in finding.where)
    fixes = _UNWATCHED if watched and hooks else finding.fixes
    where = (*finding.where, *watched)
    return replace(finding, evidence=(*finding.evidence, *seen), where=where, fixes=fixes)


_CODE: Final = """\
total += {loss}  # stays on the device
if step % 100 == 0:
    entry = {{"step": step, "loss": float(total) / 100}}
    log.write(json.dumps(entry) + "\\n")
    total = 0.0"""
_TEXT: Final = (
    "Do it every hundredth step, with the mean of the steps between. Let a file buffer: no flush,"
    " no fsync."
)
_UNWATCHED: Final = both("Watch no gradients. wandb.watch: log=None, or log_freq=1000.")

# Of a hundred times one is left.
detect = phase(Phase.LOGGING, left=0.01, also=_watched)

rule = Rule(
    title="Logging takes time in every step",
    fixes={
        "pytorch": Fix(_TEXT, _CODE.format(loss="loss.detach()")),
        "jax": Fix(_TEXT, _CODE.format(loss="loss")),
    },
)

"""Validation takes much of the training's time.

## What it sees
Main-thread samples in evaluation: of trainers, your blocks with `eval()`, `torch.no_grad()`,
`train=False` or `deterministic=True`, and rare code that runs the model.
`whyidle.monitor.phase("validation")` or our callbacks mark it exactly.

## Why it costs
No step runs meanwhile, and loader workers take seconds to start.

## How to fix
Compile the forward pass too. Another job can compute exact scores from the checkpoints.

## When it is wrong
Early stopping and checkpoint choice may need every validation.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from whyidle.monitor.core.finding import Confidence, Found, Gain
from whyidle.monitor.core.host_class import LAUNCHES, OF_FRAMEWORK, HostClass
from whyidle.monitor.rules import Fix, Rule, Severity, Verdict, Window
from whyidle.monitor.signals.account import HostAccount
from whyidle.monitor.signals.asides import Taken, found, of_phase, taken
from whyidle.monitor.signals.phases import Phase

# A tenth of it is left.
LEFT: Final = 0.1
# Of a function that is only called so, this much at least runs a model.
OF_MODEL: Final = 0.5
# Of one that mostly waits, which may be for the steps before it.
LEAST_WAITING: Final = 0.2
_RUNS_MODEL: Final = OF_FRAMEWORK | {HostClass.UNCLEAR}


def detect(window: Window) -> Verdict:
    """Judge the time in evaluations."""
    account = window.sampled
    validating = of_phase(account, Phase.VALIDATION)
    if validating is not None:
        return found(window, validating, LEFT)
    named = _running(account, Phase.VALIDATION)
    some = named or _running(account, Phase.PERIODIC)
    if some is None:
        return None
    if (finding := found(window, some, LEFT)) is not None:
        return replace(finding, confidence=Confidence.HINTED)
    if named is None or some.most < LEAST_WAITING or not all(row.due for row in some.rows):
        return None
    # It mostly waits: for itself, or for steps before it.
    return Found(
        gain=Gain.between(0.0, some.gain(window, 0.0).high),
        evidence=some.evidence(window),
        where=some.where(lambda row: row.begins),
        severity=Severity.LOW,
        # In part it may wait for the steps before.
        title=f"Validation takes at most {some.most:.0%} of the main thread's time",
        confidence=Confidence.HINTED,
    )


def _running(account: HostAccount, phase: Phase) -> Taken | None:
    """Return what a phase takes that no act shows; ``None``: it runs no model."""
    rows = [row for row in account.rows if row.phase is phase]
    some = taken(account, rows)
    runs = sum(row.share for row in rows if row.doing in _RUNS_MODEL)
    if phase is Phase.PERIODIC:
        # What is due and mostly waits, as to print a loss, waits for the steps.
        runs = sum(row.share for row in rows if row.doing in LAUNCHES - {HostClass.PUT})
    is_model = runs >= OF_MODEL * some.most > 0
    return some if is_model and phase in account.phases else None


_TEXT: Final = "Validate a tenth as often, or on a tenth of the samples"

rule = Rule(
    title="Validation takes much of the training's time",
    fixes={
        "pytorch": Fix(
            f"{_TEXT}. If it has a DataLoader: larger batches, persistent_workers=True.",
            """\
if step % 5000 == 0:  # was: step % 500
    with torch.inference_mode():
        some = itertools.islice(held_out, 20)
        losses = [loss_of(model(x), y) for x, y in some]
    # one read, at the end
    print(step, torch.stack(losses).mean().item())""",
        ),
        "jax": Fix(
            f"{_TEXT}. Run the forward pass under jax.jit, and read once at the end.",
            """\
if step % 5000 == 0:  # was: step % 500
    some = itertools.islice(held_out, 20)
    losses = [loss_of(params, x, y) for x, y in some]
    print(step, float(jnp.stack(losses).mean()))  # one read, at the end""",
        ),
    },
)

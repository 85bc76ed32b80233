"""Validation takes much of the training's time.

## What it sees
Stack samples of the main thread in an evaluation: the evaluation loops of Lightning, transformers
and Keras, a function of yours that sets the model to `eval()` and goes through batches without
gradients, and code without gradients guarded by `if step % 500 == 0`. Among the lines that train it
is also what follows `model.eval()`, runs a model under `torch.no_grad()` on other data, or passes
`train=False`, `training=False` or `deterministic=True`, if nothing learns from it. A function with
only such a name counts if the framework does most of its work. So does anything else that runs
every few steps, runs the model and learns nothing: scores on all samples, or images to look at.
What the job's own code marks comes first: one of our callbacks in a trainer, or
`whyidle.monitor.phase("validation")`. It counts how often this happened while it watched; a
validation outside that time is not judged.

## Why it costs
No step runs meanwhile, and a loader that starts again delivers its first batch late: with workers
that start for each pass it takes seconds.

## How to fix
Validate a tenth as often, or on a tenth of the samples: that is enough to see where the loss is
going. Give the loader `persistent_workers=True`, use larger batches than in training (nothing is
kept for a backward pass), compile the forward pass too, and keep scores on the device until the
end. Exact scores can be computed by another job, from the checkpoints.

## When it is wrong
Early stopping, and the choice of a checkpoint, may need every validation. What is seen once in a
window may be due once an hour: then the range begins at zero, as it does if the host mostly waits
in it. JAX launches ahead: what it waits for may be earlier steps.

## Documents
Beyond the documents: they do not validate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from whyidle.monitor.core.finding import Confidence, Found, Gain
from whyidle.monitor.core.host_class import HostClass
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
_COMPUTES: Final = frozenset({HostClass.EAGER, HostClass.FRAMEWORK})
_RUNS_MODEL: Final = _COMPUTES | {HostClass.FRAMEWORK_WAIT, HostClass.READ, HostClass.UNCLEAR}


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
        runs = sum(row.share for row in rows if row.doing in _COMPUTES)
    is_model = runs >= OF_MODEL * some.most > 0
    return some if is_model and phase in account.phases else None


_TEXT: Final = "Validate a tenth as often, or on a tenth of the samples"

rule = Rule(
    title="Validation takes much of the training's time",
    fixes={
        "pytorch": Fix(
            f"{_TEXT}. Use larger batches, and persistent_workers=True for its loader.",
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

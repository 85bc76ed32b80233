"""Activations fill the memory and keep the batch small.

## What it sees
The allocator's peak nears its limit, and little of it is training state. Batches above 64 samples
are not judged.

## Why it costs
Layers keep activations until the backward pass.

## How to fix
Recomputing adds a third more work and allows 1.3 to 2 times the batch (D4): keep it only if samples
a second increase. bfloat16 halves activations.

## When it is wrong
A busy GPU gains nothing. A batch-size search also counts. No gain is predicted.

## Documents
D4 §4 (remat, for a larger batch).
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.code.source import called
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import MOSTLY
from whyidle.monitor.core.finding import Confidence, Evidence, Found
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window
from whyidle.monitor.rules.tiny_work import SMALL_BATCH
from whyidle.monitor.signals.memory import in_checkpoint, known_memory

# Parameters and gradients in two bytes each, a copy of the parameters and two moments in four.
STATE_BYTES: Final = 16
_RECOMPUTES: Final = frozenset({"checkpoint", "checkpoint_sequential", "remat"})


def detect(window: Window) -> Verdict:
    """Judge what fills the memory."""
    memory = known_memory(window)
    if not memory.is_near or _recomputes(window):
        return None
    batch = window.fact("batch_size")
    if isinstance(batch, int) and batch > SMALL_BATCH:
        return None
    if window.uses("jax"):
        programs = [p for p in window.fact("largest_executables") or () if p.get("temporary_bytes")]
        step = max(window.needed(programs or None, Need.INSIDE), key=lambda p: p["temporary_bytes"])
        arguments, results = step.get("argument_bytes") or 0, step.get("output_bytes") or 0
        # A step gives back the state that it was given, or its gradients; a forward pass little.
        if results < MOSTLY * arguments:
            return None
        # A program's figures are of one device.
        kept: float = memory.devices * step["temporary_bytes"]
        state: float = memory.devices * arguments
    else:
        number, size = window.fact("parameters"), window.fact("parameter_bytes")
        used = window.job.ranges.get(m.PROCESS_POOL_USED)
        if not isinstance(number, int) or used is None:
            return window.lacks(Need.INSIDE, "the size of the model, of an optimizer that steps")
        state = min(used[0], max(STATE_BYTES * number, STATE_BYTES / 4 * (size or 0)))
        kept = memory.peak - state
    if kept < MOSTLY * memory.limit or kept <= state:
        return None
    measure = window.job.measure
    return Found(
        gain=None,
        evidence=(
            Evidence.of("in use during a step only, at least", measure(kept, "bytes")),
            Evidence.of("in use all the time, at most", measure(state, "bytes")),
            *memory.evidence(window),
            *([Evidence.of("batch", measure(batch, "samples"))] if isinstance(batch, int) else ()),
        ),
        severity=Severity.MEDIUM if memory.is_tight else Severity.LOW,
        confidence=Confidence.INFERRED,
    )


def _recomputes(window: Window) -> bool:
    """Tell whether the main thread was found where layers are wrapped for that."""
    chains = window.job.stacks.chains
    lines = (line for chain in chains for line in chain.frames)
    names = (name for line in lines for name in called(line.file, line.line))
    return any(map(in_checkpoint, chains)) or any(
        name.rpartition(".")[2] in _RECOMPUTES for name in names
    )


rule = Rule(
    title="Activations fill the memory and keep the batch small",
    documents=("D4 §4",),
    fixes={
        "jax": Fix(
            "Wrap each layer in jax.checkpoint, and take a larger batch.",
            "layer = jax.checkpoint(layer)",
        ),
        "pytorch": Fix(
            "Checkpoint each layer, and take a larger batch.",
            "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
        ),
    },
    kind=Kind.MEMORY,
)

"""Activations are computed again in the backward pass, although there is memory to keep them.

## What it sees
Samples of layers in the backward pass, while memory is free.

## Why it costs
A checkpointed layer runs once more: up to a third more work.

## How to fix
If memory does not suffice for all, keep the checkpoints of the largest layers. In a Hugging Face
trainer: `gradient_checkpointing=False`.

## When it is wrong
Larger batches, validation or another job may need the memory. On a CPU, Lightning and Hugging Face
trainers are not judged.

## Documents
Beyond the five documents. D4 §4 advises recomputing activations if memory is short.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code.source import calls, last
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.memory import device_memory, in_checkpoint, room_on_host
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.user_lines import asking, own

# What comes back of it (``benchmarks/step_costs.py``): a kept activation takes memory that is new,
# and a checkpoint has a price of its own, as has memory that is given back and taken again: of a
# step a tenth more.
BACK: Final = (0.6, 1.5)
BESIDE: Final = 0.1
# On a GPU the samples do not say how long it computes: of a forward pass, one more, and a backward
# pass of twice that, at most a quarter.
BACK_ON_GPU: Final = (0.0, 0.25)
_BACK: Final = frozenset({"backward", "grad"})
_WRAPS: Final = frozenset({"checkpoint", "checkpoint_sequential"})
# What may stand on the same line: scaled or averaged, it is still only the loss.
_OF_A_LOSS: Final = frozenset({"scale", "mean", "sum", "div", "prepare_for_backward"})
_ASKS: Final = re.compile(
    r"gradient_checkpointing(_enable)?\b(?!\s*=\s*False)|\bcheckpoint(_sequential|_wrapper)?\("
    r"|apply_activation_checkpointing"
)


def detect(window: Window) -> Verdict:
    """Judge the time of layers within backward passes, beside the memory that is left."""
    job, on_gpu = window.job, window.device == "gpu"
    if not job.stacks.samples:
        return window.lacks(Need.INSIDE)
    chains = job.stacks.chains
    if on_gpu:
        # In what part of the looks the pass back's own thread was found in a checkpoint.
        threads = job.threads.chains.items()
        found = sum(counts.samples for chain, counts in threads if in_checkpoint(chain))
        again = within = min(1.0, found / job.stacks.samples)
    else:
        again, within = _again(job.stacks)
    # The lines that ask for it: as found in the samples, else by their text.
    lines = dict.fromkeys(line for chain in chains for line in chain.frames)
    wraps = (Place(*line) for line in lines if _called(line) & _WRAPS)
    where = own(wraps) or asking(job, _ASKS)
    # Layers also run within a pass back that somebody has written: where nobody asks for it, none
    # is meant.
    is_meant = where or on_gpu or any(map(in_checkpoint, chains))
    # At five samples a second less is chance.
    if again < Severity.MEDIUM.least or not is_meant:
        return None
    taken, left = _room(window)
    if left.value < taken.value:
        return None
    error = step_samples(job).error
    on_cpu = BACK[0] * (again - error(again)), BACK[1] * (within + error(within)) + BESIDE
    low, high = BACK_ON_GPU if on_gpu else on_cpu
    thread = (
        "the backward pass's thread: computes layers again"
        if on_gpu
        else "main thread: computes layers again, in the backward pass"
    )
    return Found(
        gain=Gain.between(low, high),
        evidence=(
            Evidence.of(thread, job.sampled(again)),
            Evidence.of("memory that the job takes", taken),
            Evidence.of("memory that is left", left),
        ),
        where=where,
        slice=Slice.COMPUTE,
        severity=Severity.LOW if on_gpu else None,
        confidence=Confidence.INFERRED,
    )


def _again(stacks: StackSamples) -> tuple[float, float]:
    """Return the share of the samples in layers within a pass back, and in anything there."""
    begins = {chain: _back_at(chain) for chain in stacks.chains}
    ahead = {_of(x) for chain, at in begins.items() if at is None for x in chain.frames}
    again = within = 0.0
    for chain, counts in stacks.chains.items():
        at, leaf = begins[chain], chain.leaf
        # Python runs within it, and not only what starts it.
        if at is None or (at == 0 and (leaf is None or plays(Role.ENGINE, leaf))):
            continue
        within += counts.samples
        # A layer, or lines that run before a pass back as well; what else runs there may be
        # activations of a library's, or a hook.
        named = (line for line in chain.frames[:at] if not line.function.startswith("<"))
        if plays(Role.LAYER, leaf) or any(_of(line) in ahead for line in named):
            again += counts.samples
    return again / stacks.samples, within / stacks.samples


def _room(window: Window) -> tuple[Measure, Measure]:
    """Return the memory that the job takes, and what is left of it; raises ``Lacking``."""
    measure, memory, taken = window.job.measure, device_memory(window), window.job.mean(m.JOB_RSS)
    if window.device == "gpu":
        memory = window.needed(memory, Need.INSIDE, "the memory that is left")
        return measure(memory.peak, "bytes"), measure(memory.limit - memory.peak, "bytes")
    rooms = [] if taken is None else room_on_host(window, taken.value)
    taken = window.needed(taken if rooms else None, Need.RECORDING, "the memory that is left")
    return taken, measure(min(rooms), "bytes", "procfs")


def _of(line: CodeLine) -> tuple[str, str]:
    return line.file, line.function


def _back_at(chain: Chain) -> int | None:
    """Return which of the user's lines calls a framework's pass back; ``None``: none does."""
    for at, line in enumerate(chain.frames):
        names = _called(line)
        if names & _BACK and not names - _BACK - _OF_A_LOSS:
            # A method of the user's own of that name is none.
            return at if at == 0 or chain.frames[at - 1].function not in names else None
    return None


def _called(line: CodeLine) -> set[str]:
    return {last(call) for call in calls(line.file, line.line)}


rule = Rule(
    title="Activations are recomputed although memory is free",
    fixes={
        "pytorch": Fix(
            "Call the layers without a checkpoint: all, or every second one.",
            """\
for at, layer in enumerate(layers):
    # or all of them: x = layer(x)
    if at % 2:
        x = checkpoint(layer, x, use_reentrant=False)
    else:
        x = layer(x)""",
        )
    },
    only=("pytorch",),
)

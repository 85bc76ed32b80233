"""The steps are so small that overhead takes most of them.

## What it sees
On a CPU: many operators in a step with a small batch. On a GPU: most kernels shorter than a launch,
and most memory free.

## Why it costs
Launches and updates take the same time for 8 samples as for 512.

## How to fix
Increase the batch until samples a second stop growing, and scale the learning rate. Pass the next
piece of all padded rows in one call: 17 times as many rows a second for 64 at once.

## When it is wrong
Gradient accumulation runs as many small steps (11.2k -> 12.8k samples/s, against 77.6k with a real
batch). If another fault splits operations, fix that first. JAX on a CPU is not judged.

## Documents
D1 §3 (larger batches).
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Final

from whyidle.monitor.code.source import function_at, nodes_of
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import MOSTLY, NEARLY_ALL, SURELY
from whyidle.monitor.core.finding import Evidence, Found, Gain, Place
from whyidle.monitor.rules import Fix, Need, Rule, Slice, Verdict, Window
from whyidle.monitor.signals.operators import Overhead, overhead, small_calls
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import files

# A batch that a CPU has something to do with.
SMALL_BATCH: Final = 48
# With six times the batch a sixth of the overhead stays; with 32 times, next to nothing.
LARGER, LARGEST = 6, 32
# A step of a larger batch takes longer: what gets faster is the training.
MANY_ROWS: Final = Fix(
    "Pad rows to one length, and pass the next piece of all in one call. torch.compile would"
    " make such a small call slower.",
    """\
batch = pad_sequence(rows)
lengths = torch.tensor([len(row) for row in rows])
state, outputs = torch.zeros(len(rows), state_size), []
for pieces in batch:  # one call for all rows
    output, state = model(pieces, state)
    outputs.append(output)
last = torch.stack(outputs)[lengths - 1, torch.arange(len(rows))]""",
)
MANY_ENVIRONMENTS: Final = Fix(
    "Run several environments, and ask the model once for all of them. torch.compile would make"
    " such a small call slower."
)
TITLE: Final = "Most of each step is overhead: the batch is too small"


def detect(window: Window) -> Verdict:
    """Judge how much a step has to do."""
    if window.trace is None:
        return window.lacks(Need.TRACE)
    trace = window.gpu_trace
    return _on_cpu(window) if trace is None else _on_gpu(window, trace)


def _on_cpu(window: Window) -> Verdict:
    if not window.computes("pytorch"):
        return window.lacks(Need.GPU_TRACE)
    cost, batch = window.needed(overhead(window), Need.STEPS), window.fact("batch_size")
    if not isinstance(batch, int):
        return _of_small_calls(window, cost)
    if cost.share < MOSTLY or batch >= SMALL_BATCH:
        return None
    pace = window.steps_per_s
    measures = {
        "batch": window.job.measure(batch, "samples"),
        "operators": cost.per_step,
        "main thread's time for one": cost.each.times(1e6, "us"),
        # Samples a second, not steps.
        "trained now (the gain is of this)": pace and pace.times(batch, "samples/s"),
    }
    return Found(
        gain=_gain_on_cpu(window, cost),
        evidence=Evidence.known(measures),
        slice=Slice.COMPUTE,
        title=TITLE,
        fixes={"pytorch": replace(rule.fixes["pytorch"], at=_set_at(window, batch))},
    )


def _set_at(window: Window, batch: int) -> Place | None:
    """Return the line at which the only batch size stands as a number; ``None``: not known."""
    given = [
        (file, node.value)
        for file in files(window.job)
        for node in nodes_of(file)
        if isinstance(node, ast.keyword) and node.arg == "batch_size"
    ]
    if len(given) != 1:
        # Which of several is meant is not known.
        return None
    file, value = given[0]
    is_it = isinstance(value, ast.Constant) and value.value == batch
    return Place(file, value.lineno, function_at(file, value.lineno)) if is_it else None


def _gain_on_cpu(window: Window, cost: Overhead) -> Gain:
    optimizer = window.job.mean(m.PROCESS_OPTIMIZER_TIME)
    # What an optimizer does is the same for any batch, too, as far as its operators are not that.
    others = 1 - (optimizer.value if optimizer else 0.0)
    most = 1 - (1 - cost.share) * others
    return Gain.between(cost.least * (1 - 1 / LARGER), most * (1 - 1 / LARGEST))


def _of_small_calls(window: Window, cost: Overhead) -> Verdict:
    """Judge a model that is called several times in a step, of a batch that nobody knows."""
    few = window.needed(
        None if window.trace is None else small_calls(window, window.trace),
        Need.INSIDE,
        "the size of a batch, of a DataLoader",
    )
    # Operators that cost more have something to do.
    if cost.least < MOSTLY:
        return None
    plays = any(row.phase is Phase.ENVIRONMENT for row in window.rows)
    return Found(
        gain=_gain_on_cpu(window, cost),
        evidence=(
            Evidence.of("calls of each layer in a step", few.calls),
            Evidence.of("operators for one call", few.operators),
            Evidence.of("main thread's time for one", cost.each.times(1e6, "us")),
        ),
        slice=Slice.COMPUTE,
        title="Each call of the model has too little to compute",
        fixes={"pytorch": MANY_ENVIRONMENTS if plays else MANY_ROWS},
    )


def _on_gpu(window: Window, trace: Traced) -> Verdict:
    kernels, late = trace.kernels, trace.share(Slice.IDLE_DISPATCH)
    if kernels is None or late is None:
        return window.lacks(Need.FRAMES)
    short = kernels["short"]
    of_short = short["total_ns"] / kernels["total_ns"] if kernels["total_ns"] else 0.0
    if of_short < MOSTLY:
        return None
    memory = [
        (gpu.means.get(m.GPU_MEMORY_USED), gpu.means.get(m.GPU_MEMORY_TOTAL)) for gpu in window.gpus
    ]
    used = [part / whole for part, whole in memory if part is not None and whole]
    if not used or len(used) < len(memory):
        return window.lacks(Need.GPU, "how much memory is free")
    if max(used) > MOSTLY:
        return None
    kept = of_short * trace.taken(Slice.COMPUTE)
    # Launches take the same for any batch, and short kernels nearly so.
    low, high = (late.value + part * kept for part in (SURELY, NEARLY_ALL))
    share = trace.measure(short["count"] / kernels["count"], "ratio")
    return Found(
        gain=Gain.between(low * (1 - 1 / LARGER), high),
        evidence=(
            Evidence.of("kernels shorter than 10 us", share),
            Evidence.of("memory in use", window.job.measure(max(used), "ratio", "nvml")),
        ),
        slice=Slice.COMPUTE,
        title=TITLE,
    )


rule = Rule(
    title="The steps are so small that overhead takes most of them",
    documents=("D1 §3",),
    fixes={
        "pytorch": Fix(
            "Use a larger batch. Accumulating gradients does not help.",
            "loader = DataLoader(dataset, batch_size=512, **as_before)",
        ),
        "jax": Fix(
            "Use a larger batch: one call of jax.vmap for all samples.",
            """\
losses_of = jax.jit(jax.vmap(loss, in_axes=(None, 0)))
losses = losses_of(params, batch_of_512)""",
        ),
    },
    paced_by="samples",
)

"""The device waits for Python to launch small operations.

## What it sees
On a GPU: time in a trace in which no kernel is launched yet. On a CPU: many operators in a step.

## Why it costs
Each operator costs some 10 us of Python, a small kernel 5 us.

## How to fix
`torch.compile` turns many kernels into few; `mode="reduce-overhead"` launches them as one CUDA
graph. Optimizers with `fused=True` and larger batches also help.

## When it is wrong
A trace with stacks or shapes exaggerates this. Changing shapes compile again: mark them dynamic.
Collectives, data-dependent Python and printing break the graph. A model called for one observation
at a time gets slower when compiled (`tiny_work`).

## Documents
D5 (its `tf.function` is TensorFlow's way to do the same).
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.amounts import MOSTLY
from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.rules.tiny_work import SMALL_BATCH
from whyidle.monitor.signals.operators import computing, overhead, small_calls
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import of_slice

# Fewer launches in a trace are a start or an end.
LEAST_LAUNCHES: Final = 100
# What a graph cannot hold stays (collectives, data, the step around it): a third and more. Where it
# holds the whole step all comes back: 0.89 of 0.90 on an H100 (`cuda_graphs` in docs/gpu.md).
BACK_LEAST: Final = 0.4
# On a CPU a step is bound by its operators where they take so much of it: in demos after their fix,
# which are healthy, they take 0.5 to 0.8 (``make golden``).
BOUND: Final = 0.8
# One fused kernel replaces three to ten of them, and to call what was compiled has a price of its
# own: of steps that compute next to nothing 0.36 to 0.52 came back (a recurrent cell, a flow, an
# equation, layers between norms), of the demo 0.6 to 0.77. Of those that compute for half of the
# time or more nothing did: compiled they were slower.
FUSED_LEAST, FUSED_MOST = 0.35, 0.85
MORE_AT_ONCE: Final = Fix(
    "Compute more per call: batch samples, sequences or environments. Pad sequences first."
    " Compile only what is called once a step with fixed shapes: small calls get slower."
)
_COMPILED: Final = r"Torch-Compiled Region.*|CompiledFunction|## Call CompiledFxGraph.*"


def detect(window: Window) -> Verdict:
    """Judge how the work is launched."""
    if window.trace is None:
        is_other = window.frameworks and not window.computes("pytorch")
        return None if is_other else window.lacks(Need.TRACE)
    if not window.computes("pytorch"):
        # Neither agent nor trace knows it, as with TensorFlow: the fix would not fit.
        return None
    trace = window.gpu_trace
    return _on_cpu(window, window.trace) if trace is None else _on_gpu(window, trace)


def _on_gpu(window: Window, trace: Traced) -> Verdict:
    launching, late = trace.launching, trace.share(Slice.IDLE_DISPATCH)
    if launching is None or late is None or not launching["calls"]:
        return window.lacks(Need.FRAMES)
    graphs = launching["graph_operations"] / launching["operations"]
    # Every eager job has a little of it.
    is_little = late.value < Severity.MEDIUM.least or launching["calls"] < LEAST_LAUNCHES
    if is_little or graphs > MOSTLY:
        return None
    each, kernels = launching["calls_per_step"], trace.kernels
    short = None if kernels is None else kernels.get("short")
    measures = {
        "waiting for the next launch": late,
        "launches": None if each is None else trace.measure(each, "1/step"),
        "kernels shorter than 10 us": trace.measure(short["count"] / kernels["count"], "ratio")
        if kernels and short
        else None,
    }
    return Found(
        gain=Gain.between(late.value * BACK_LEAST, late.value),
        evidence=Evidence.known(measures),
        where=of_slice(window, Slice.IDLE_DISPATCH),
        slice=Slice.IDLE_DISPATCH,
    )


def _on_cpu(window: Window, trace: Traced) -> Verdict:
    cost = window.needed(overhead(window), Need.STEPS)
    batch = window.fact("batch_size")
    is_batched = isinstance(batch, int)
    # Of a batch that nobody knows, tiny_work speaks where most is surely overhead.
    is_anothers = is_batched or cost.least >= MOSTLY
    small = (is_batched and batch < SMALL_BATCH) or (
        is_anothers and small_calls(window, trace) is not None
    )
    # What products take a compiler leaves: it calls the same ones.
    share = min(cost.share, 1 - computing(trace))
    # Below such a batch more samples in a step are the better cure: tiny_work.
    if share < BOUND or small or trace.calls(_COMPILED):
        return None
    # A model that is called for one sample, or one element of a sequence, at a time is slower
    # compiled: nothing says that this one is not.
    gain = Gain.between(share * FUSED_LEAST * is_batched, share * FUSED_MOST)
    # Operators and what lies between them are one cost. What is not sure is held against what was
    # seen to be lost: not against a sliver of it.
    least = Severity.MEDIUM.least if is_batched else MOSTLY * gain.expected
    is_late = trace.taken(Slice.IDLE_DISPATCH) >= least
    part = Slice.IDLE_DISPATCH if is_late else Slice.COMPUTE
    return Found(
        gain=gain,
        evidence=(
            Evidence.of("operators", cost.per_step),
            Evidence.of("main thread's time for one", cost.each.times(1e6, "us")),
        ),
        where=of_slice(window, part),
        slice=part,
        title=None if is_batched else "The step is many small operations in a row",
        fixes=None if is_batched else {"pytorch": MORE_AT_ONCE},
    )


rule = Rule(
    title="The device waits for Python to launch small operations",
    documents=("D5",),
    fixes={
        "pytorch": Fix(
            "Compile the model, on a GPU into CUDA graphs.",
            """\
graphs = "reduce-overhead" if torch.cuda.is_available() else None
model.compile(mode=graphs)""",
        )
    },
)

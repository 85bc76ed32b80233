"""A loop of Python goes through the batch sample by sample.

## What it sees
In the user's own source a loop around the lines where the main thread is found, or around those
that called them, whose passes do not need one another, and which is in the framework most of the
time. A trace, where there is one, must show the same function called many times in a step (JAX),
or each layer many times for each pass back, or each operation that such a line names many times in
a step (PyTorch).

## Why it costs
Each call costs microseconds before any number is multiplied, whatever its size: Python, a search
for the program, a launch. A sample alone is too little work to be worth them, and a product of
vectors in place of matrices leaves most of the device unused.

## How to fix
Give the whole batch to one call. In PyTorch layers take a batch dimension in front; `torch.vmap`
adds one to a function that has none. In JAX write the function for one sample, and let `jax.vmap`
make it one for the batch.

## When it is wrong
Samples of different shapes cannot be stacked before they are padded. The results of all samples at
once need more memory than those of one. A loop in which each pass needs the one before is not
meant: that is for `lax.scan`.

## Documents
D4 §2 (vmap for loops).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from whyidle.monitor.core.finding import Confidence, Evidence, Fix, Found, Gain, Need, Verdict
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.acts import Phase
from whyidle.monitor.signals.loops import Looping, over_samples
from whyidle.monitor.signals.operators import steps_in
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.source import calls, last
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import own
from whyidle.monitor.signals.window import Window

# The catalogue's mark for a motif that repeats within a step.
LEAST_TIMES: Final = 8
# Each weight takes part once in a pass; many have a bias beside them, which counts as well.
LEAST_USES: Final = 4
# A loop that takes less of the main thread is not what its time goes to.
LEAST_SHARE: Final = 0.1
# Of the time of one operator on so little data this much at most is work (measured on the CPU: a
# product of 1 x 256 takes about a seventh of the time of its call).
WORK_OF_A_CALL: Final = 0.15
# What a batch leaves of the work: a product for one sample waits for the weights to be read, one
# for the batch reads them once. Half of it at most, since nothing is read twice any more; a tenth
# where the weights do not fit into the cache (a fifth for 32 samples and layers of 128).
LEFT_LEAST, LEFT_MOST = 0.1, 0.5

# Of the samples in the loop so many at least are in the framework, or in a line that may call it.
OF_CALLS: Final = 0.5
# Who waits in such a line has launched enough for the device to be behind.
_CALLS: Final = frozenset({HostClass.EAGER, HostClass.FRAMEWORK, HostClass.READ, HostClass.UNCLEAR})


def detect(window: Window) -> Verdict:
    """Judge loops over the samples of a batch."""
    times = None if window.trace is None else _times(window, window.trace)
    is_once = window.trace is not None and not _is_often(times)
    if is_once and (window.uses("jax") or not window.job.lines):
        return None
    if not window.job.lines:
        return window.lacks(Need.INSIDE)
    seen = step_samples(window.job)
    rows = () if window.host is None else window.host.rows
    # A validation goes through batches as well, and what it calls trains nothing.
    steps = [row for row in rows if row.phase is Phase.STEP] or rows
    chains = ((row.frames, row.share) for row in steps)
    # A trace tells methods of samples from those of metrics: the first are operations.
    loop = over_samples(seen.lines, chains, methods=is_once)
    if loop is None:
        return None if is_once else window.lacks(Need.SOURCE)
    share = loop.share
    if is_once and window.trace is not None:
        names = _names(loop, steps)
        times = _of_operations(window.trace, names)
        share = loop.share if _goes_back(window.trace, names) else loop.inside
    # That each pass calls the framework, a trace shows; without one the samples must.
    often = _is_often(times) if window.trace is not None else _is_of_calls(window, loop)
    if share < LEAST_SHARE or not often:
        return None
    if times is None and share < seen.error(share):
        return window.lacks(Need.TRACE)
    counted = () if times is None else (Evidence.of(*times),)
    return Found(
        gain=_gain(window, share, seen.error(share), times),
        evidence=(*counted, Evidence.of("main thread on the loop", window.job.sampled(share))),
        where=own(loop.where),
        confidence=Confidence.INFERRED,
        slice=Slice.IDLE_DISPATCH,
    )


def _is_of_calls(window: Window, loop: Looping) -> bool:
    """Tell whether the loop calls the framework, by where the thread was found in it."""
    mine = {(place.file, place.line) for place in loop.where}
    rows = () if window.host is None else window.host.rows
    inside = [row for row in rows if any((f.file, f.line) in mine for f in row.frames)]
    # A loop that calls graphs of TensorFlow, one in each pass, goes through batches: what one holds
    # does not show in its lines.
    kinds = {HostClass.EAGER} if window.uses("tensorflow") else _CALLS
    calls = sum(row.share for row in inside if row.doing in kinds)
    return calls >= OF_CALLS * sum(row.share for row in inside) > 0


def _is_often(times: tuple[str, Measure] | None) -> bool:
    return times is not None and times[1].value >= LEAST_TIMES


def _times(window: Window, trace: Traced) -> tuple[str, Measure] | None:
    """Return what is called how often in a step; ``None``: not known."""
    if window.uses("jax"):
        return _of_functions(trace)
    # Forward of each layer one of these is called; what goes back may be less, or nothing.
    forward = [c["count"] for c in trace.calls(r"aten::(linear|convolution|bmm|baddbmm)")]
    backward = [c["count"] for c in trace.calls(r"(Addmm|Mm|Mv|Bmm|Convolution|Dot)Backward\d")]
    added = trace.count("torch::autograd::AccumulateGrad")
    used = max(sum(forward), sum(backward))
    if not used or not added:
        return None
    # With a bias each layer has two parameters.
    times = trace.measure(LEAST_TIMES / LEAST_USES * used / added, "count")
    return "calls of each layer in a step", times


def _of_functions(trace: Traced) -> tuple[str, Measure] | None:
    calls = trace.calls(r"PjitFunction\(.*\)")
    if not calls:
        return None
    most = max(calls, key=lambda call: int(call["count"]))
    # Without steps the function with the most time stands for them: never one that is called now
    # and then, beside which every step would look like a loop.
    steps = trace.steps or max(calls, key=lambda call: int(call["total_ns"]))["count"]
    name = str(most["name"]).removeprefix("PjitFunction(").removesuffix(")")
    return f"calls of '{name}' in a step", trace.measure(most["count"] / steps, "count")


def _names(loop: Looping, rows: Iterable[HostRow]) -> set[str]:
    """Return what a pass of the loop calls, itself and further in."""
    mine = {(place.file, place.line) for place in loop.where}
    inside = set[tuple[str, int]]()
    for row in rows:
        ends = [n for n, f in enumerate(row.frames) if (f.file, f.line) in mine]
        inside |= {(f.file, f.line) for f in row.frames[: ends[-1] if ends else 0]}
    return {*loop.calls, *(last(call) for line in inside for call in calls(*line))}


def _of_operations(trace: Traced, names: set[str]) -> tuple[str, Measure] | None:
    """Return how often in a step the rarest of these operations runs."""
    counts = ((trace.count(f"aten::{re.escape(name)}_?"), name) for name in names)
    ran = [each for each in counts if each[0]]
    steps = steps_in(trace)
    if not ran or not steps:
        return None
    count, name = min(ran)
    return f"calls of '{name}' in a step", trace.measure(count / steps, "count")


def _goes_back(trace: Traced, names: set[str]) -> bool:
    """Tell whether gradients come back through the passes: then what follows is theirs, too."""
    steps = steps_in(trace)
    like = "|".join(map(re.escape, names))
    return bool(steps) and trace.count(rf"(?i:({like})Backward\d)") >= LEAST_TIMES * steps


def _gain(window: Window, share: float, error: float, times: tuple[str, Measure] | None) -> Gain:
    """Keep one call in all of the loop, and a part of its work."""
    work = _work(window)
    least, most = share - error, min(1.0, share + error)
    fewest, many = (LEAST_TIMES, math.inf) if times is None else 2 * (times[1].value,)
    return Gain.between(
        least * (1 - min(1.0, work[1] + 1 / fewest)), most * (1 - min(1.0, work[0] + 1 / many))
    )


def _work(window: Window) -> tuple[float, float]:
    """Return what stays of the work, as shares of the loop."""
    if window.device == "cpu" and not window.uses("jax"):
        # There an operator and the call of it are one.
        return 0.0, WORK_OF_A_CALL
    trace = window.trace
    if trace is None:
        return 0.0, LEFT_MOST
    compute, dispatch = (trace.share(part) for part in (Slice.COMPUTE, Slice.IDLE_DISPATCH))
    if compute is None or dispatch is None or not compute.value + dispatch.value:
        return 0.0, WORK_OF_A_CALL
    work = compute.value / (compute.value + dispatch.value)
    return LEFT_LEAST * work, LEFT_MOST * work


rule = Rule(
    title="A loop of Python goes through the batch sample by sample",
    documents=("D4 §2",),
    fixes={
        "jax": Fix(
            "Let jax.vmap make the function of one sample into that of the batch.",
            """\
@jax.jit
def loss_of_batch(params, xs, ys):
    losses = jax.vmap(loss_of_one, in_axes=(None, 0, 0))(params, xs, ys)
    return losses.mean()""",
        ),
        "pytorch": Fix(
            "Call the model once with the whole batch; torch.vmap where a function takes only one.",
            """\
out = model(xs)  # not: torch.stack([model(x) for x in xs])
losses = torch.vmap(loss_of_one)(out, ys)""",
        ),
    },
    detect=detect,
)

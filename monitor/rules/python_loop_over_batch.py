"""A Python loop goes through the batch sample by sample.

## What it sees
A loop in your source with independent passes, mostly inside the framework. A trace must show one
function or layer many times in a step.

## Why it costs
One sample leaves most of the device unused.

## How to fix
PyTorch layers take a leading batch dimension; `torch.vmap` and `jax.vmap` add one to a function.

## When it is wrong
Different shapes need padding. All results at once need more memory. Loops over pyramid levels or
heads look alike. Dependent passes need `lax.scan`; they are not reported.

## Documents
D4 §2 (vmap for loops).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Final

from whyidle.monitor.code.loops import LEAST_TIMES, Looping, Way, over_samples
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE, MOSTLY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.core.host_class import LAUNCHES, HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.operators import LAYERS, PARAMETER, PER_OPERATOR_S, steps_in
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import own

# Each weight takes part once in a pass; many have a bias beside them, which counts as well.
LEAST_USES: Final = 4
# Of the time of one operator on so little data this much at most is work (measured on the CPU: a
# product of 1 x 256 takes about a seventh of the time of its call).
WORK_OF_A_CALL: Final = 0.15
# What a batch leaves of the work: a product for one sample waits for the weights to be read, one
# for the batch reads them once. Half of it at most, since nothing is read twice any more; a tenth
# where the weights do not fit into the cache (a fifth for 32 samples and layers of 128).
LEFT_LEAST, LEFT_MOST = 0.1, 0.5

# Operations whose gradient has a node of the same name, which shows how many are the model's.
_ELEMENTARY: Final = re.compile(
    "abs|exp|log|sqrt|rsqrt|pow|square|sin|cos|tanh|sigmoid|relu|softmax|log_softmax|mean|std|var"
    "|norm|amax|amin|topk|sort|cumsum|clamp|round|floor|div|sub|mul|dot|mse_loss|l1_loss|median"
)
# What the gradients of pieces that are taken by their places are called.
_TAKES: Final = "Index|Select|Slice"
# A pass of a metric has some operations: so many calls at most, or it is work that a batch leaves.
MOST_OF_A_PASS: Final = 20

# Who waits in such a line has launched enough for the device to be behind.
_CALLS: Final = LAUNCHES | {HostClass.READ, HostClass.UNCLEAR}


def detect(window: Window) -> Verdict:
    """Judge loops over the samples of a batch."""
    trace = window.trace
    times = None if trace is None else _times(window, trace)
    if trace is not None and not _is_often(times):
        return _of_small(window, trace)
    if not window.job.lines:
        return window.lacks(Need.INSIDE)
    loop = window.needed(_loop(window), Need.SOURCE)
    # That each pass calls the framework, a trace shows; without one the samples must.
    if loop.share < LITTLE or (times is None and not _is_of_calls(window, loop)):
        return None
    # Levels and heads are gone through as samples are: a batch of few tells, too, that it is those.
    batch = window.fact("batch_size")
    is_of_few = isinstance(batch, int) and batch < LEAST_TIMES
    if times is None and (is_of_few or loop.share < step_samples(window.job).error(loop.share)):
        return window.lacks(Need.TRACE)
    found = _found(window, loop, (loop.share, loop.share), times)
    # What else belongs to it a trace shows; without one that is only likely.
    is_likely = times is None and loop.inside < LITTLE
    return replace(found, severity=Severity.LOW) if is_likely else found


def _of_small(window: Window, trace: Traced) -> Found | None:
    """Judge loops that compute something of each sample, or piece, and call no layer for it."""
    if window.uses("jax") or not window.job.lines:
        return None
    # The rarest of the names in a short trace are left out, and what tells its steps with them.
    steps, step = steps_in(trace) or _by_pace(window, trace), window.step_s
    for counted, way in ((_of_operations, Way.METHODS), (_of_pieces, Way.PIECES)):
        count = partial(counted, trace, steps)
        loop = _loop(window, partial(_is_called_often, count), way)
        times = None if loop is None else count(loop.calls)
        if loop is None or times is None or step is None or loop.inside < LITTLE:
            continue
        # A part of a step is a few calls: else it computes something.
        if loop.inside / times[1].value * step.value <= MOST_OF_A_PASS * PER_OPERATOR_S:
            if way is Way.METHODS:
                # Without a gradient nothing goes back through it.
                return _found(window, loop, (loop.inside, loop.inside), times)
            back = _back_through(trace, loop.calls, steps * times[1].value)
            least = min(loop.share, loop.inside + back)
            return _found(window, loop, (least, loop.share), times)
    return None


def _is_of_calls(window: Window, loop: Looping) -> bool:
    """Tell whether the loop calls the framework, by where the thread was found in it."""
    mine = {(place.file, place.line) for place in loop.where}
    inside = [row for row in window.rows if any((f.file, f.line) in mine for f in row.frames)]
    # A loop that calls graphs of TensorFlow, one in each pass, goes through batches: what one holds
    # does not show in its lines.
    kinds = {HostClass.EAGER} if window.uses("tensorflow") else _CALLS
    calls = sum(row.share for row in inside if row.doing in kinds)
    return calls >= MOSTLY * sum(row.share for row in inside) > 0


def _is_called_often(
    count: Callable[[Collection[str]], tuple[str, Measure] | None], names: set[str]
) -> bool:
    return _is_often(count(names))


def _loop(
    window: Window, fits: Callable[[set[str]], bool] | None = None, way: Way = Way.WHOLE
) -> Looping | None:
    # A validation goes through batches as well, and what it calls trains nothing.
    host = window.host
    steps = [row for row in window.rows if host and host.phase_of(row) is Phase.STEP]
    if window.rows and not steps:
        return Looping(0.0, ())
    chains = ((row.frames, row.share) for row in steps)
    return over_samples(step_samples(window.job).lines, chains, fits=fits, way=way)


def _found(
    window: Window, loop: Looping, shares: tuple[float, float], times: tuple[str, Measure] | None
) -> Found:
    """Return it for a loop that takes from so much to so much of the time.

    One call in all of the loop stays, and a part of its work.
    """
    counted = () if times is None else (Evidence.of(*times),)
    work, error = _work(window), step_samples(window.job).error
    least = max(0.0, shares[0] - error(shares[0]))
    most = min(1.0, shares[1] + error(shares[1]))
    fewest, many = (LEAST_TIMES, math.inf) if times is None else 2 * (times[1].value,)
    return Found(
        gain=Gain.between(
            least * (1 - min(1.0, work[1] + 1 / fewest)), most * (1 - min(1.0, work[0] + 1 / many))
        ),
        evidence=(*counted, Evidence.of("main thread on the loop", window.job.sampled(shares[0]))),
        where=own(loop.where),
        confidence=Confidence.INFERRED,
        slice=Slice.IDLE_DISPATCH,
    )


def _work(window: Window) -> tuple[float, float]:
    """Return what stays of the work, as shares of the loop."""
    if window.device == "cpu" and not window.uses("jax"):
        # There an operator and the call of it are one.
        return 0.0, WORK_OF_A_CALL
    trace = window.trace
    if trace is None:
        return 0.0, LEFT_MOST
    both = trace.taken(Slice.COMPUTE, Slice.IDLE_DISPATCH)
    if not both:
        return 0.0, WORK_OF_A_CALL
    work = trace.taken(Slice.COMPUTE) / both
    return LEFT_LEAST * work, LEFT_MOST * work


def _is_often(times: tuple[str, Measure] | None) -> bool:
    return times is not None and times[1].value >= LEAST_TIMES


def _times(window: Window, trace: Traced) -> tuple[str, Measure] | None:
    """Return what is called how often in a step; ``None``: not known."""
    if window.uses("jax"):
        calls = trace.calls(r"PjitFunction\(.*\)")
        if not calls:
            return None
        most = max(calls, key=lambda call: int(call["count"]))
        # Without steps the job's own pace tells them, or the function with the most time stands for
        # them: never one called now and then, beside which every step would look like a loop.
        longest = max(calls, key=lambda call: int(call["total_ns"]))
        steps = trace.steps or _by_pace(window, trace) or longest["count"]
        name = str(most["name"]).removeprefix("PjitFunction(").removesuffix(")")
        return f"calls of '{name}' in a step", trace.measure(most["count"] / steps, "count")
    # Forward of each layer one of these is called; what goes back may be less, or nothing.
    forward = trace.count(LAYERS)
    backward = trace.count(r"(Addmm|Mm|Mv|Bmm|Convolution|Dot)Backward\d")
    ahead = forward + trace.count(r"aten::(addmm|matmul|mv|dot)")
    if 0 < ahead < backward - trace.count(r"MmBackward\d"):
        # Gradients of gradients go back through the same layers again and again.
        backward = 0
    added = trace.count(PARAMETER)
    used = max(forward, backward)
    if not used or not added:
        return None
    # With a bias each layer has two parameters.
    times = trace.measure(LEAST_TIMES / LEAST_USES * used / added, "count")
    return "calls of each layer in a step", times


def _by_pace(window: Window, trace: Traced) -> float:
    """Return how many steps the job does in the time of a trace, one at least; 0: not known."""
    step = window.job.mean(m.JOB_STEP_P50)
    return max(1.0, trace.seconds / step.value) if step is not None and step.value > 0 else 0.0


def _of_operations(
    trace: Traced, steps: float, names: Collection[str]
) -> tuple[str, Measure] | None:
    """Return how often in a step the rarest of these operations runs without a gradient.

    What the model itself makes of them has one, which the count of those that come back shows.
    """
    alone = [
        (ran - trace.count(_node(name.replace("_", ""))), name)
        for name in filter(_ELEMENTARY.fullmatch, names)
        if (ran := trace.count(f"aten::{name}"))
    ]
    if not alone or not steps:
        return None
    count, name = min(alone)
    return f"calls of '{name}' in a step", trace.measure(count / steps, "count")


def _of_pieces(trace: Traced, steps: float, names: Collection[str]) -> tuple[str, Measure] | None:
    """Return how often in a step a piece with a gradient is taken, and something computed of it.

    A model may have either often by itself, and seldom has both.
    """
    if "__getitem__" not in names or not steps:
        return None
    ran = [(trace.count(f"aten::{name}"), name) for name in filter(_ELEMENTARY.fullmatch, names)]
    count, name = min((each for each in ran if each[0]), default=(0, ""))
    taken = trace.count(_node(_TAKES))
    times = trace.measure(min(count, taken) / steps, "count")
    return (f"pieces in a step, with '{name}' of each", times) if name else None


def _node(names: str) -> str:
    """Return what the gradients of operations are called in a trace: ``Log_softmaxBackward0``."""
    return rf"(?i:{names})Backward\d"


def _back_through(trace: Traced, names: Collection[str], pieces: float) -> float:
    """Return the share of the time in which gradients come back through a loop's operations.

    Of an operation that the rest of the model has as well only as much as the pieces have.
    """
    found = 0.0
    for of in (*_TAKES.split("|"), *(re.escape(name.replace("_", "")) for name in names)):
        like = f"autograd::engine::evaluate_function: {_node(of)}"
        if count := trace.count(like):
            found += trace.in_calls(like) * min(1.0, pieces / count)
    return found


rule = Rule(
    title="A Python loop goes through the batch sample by sample",
    documents=("D4 §2",),
    fixes={
        "jax": Fix(
            "Apply the function of one sample to the whole batch with jax.vmap.",
            """\
@jax.jit
def loss_of_batch(params, xs, ys):
    losses = jax.vmap(loss_of_one, in_axes=(None, 0, 0))(params, xs, ys)
    return losses.mean()""",
        ),
        "pytorch": Fix(
            "Call the model once with the whole batch. Use torch.vmap where a function takes"
            " only one sample.",
            """\
out = model(xs)  # not: torch.stack([model(x) for x in xs])
losses = torch.vmap(loss_of_one)(out, ys)""",
        ),
    },
)

"""What the operators of a step cost the main thread, whatever they compute; and small calls.

A model may be called for little at a time: once for each piece of a row, or each observation. A
compiler holds one call: what it saves there has to be more than what it costs to call the result.
A loop within ``forward`` is in the same call, and is unrolled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from whyidle.monitor.code.loops import loops_over_data
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import AGAIN
from whyidle.monitor.core.finding import Need
from whyidle.monitor.core.host_class import HOST_WORK, HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window

# Python, dispatcher and autograd, forward and backward together, for one operator that computes
# next to nothing: 9 us of pointwise ones, 14 us with linear layers and an optimizer; of a small
# transformer for pictures 7 us came back with a larger batch.
PER_OPERATOR_S: Final = 13e-6
LEAST_S: Final = 6.5e-6
# In a job that trains, one that gradients do not come back through: a metric of each sample, the
# weights read. Those of an autoencoder and of a diffusion model cost 1 to 4 us.
BESIDE_S: Final = 4e-6
LEAST_BESIDE_S: Final = 1e-6
# Operators for one node of the gradient's graph, forward and backward: 1.7 to 2.6, and some more;
# and of an optimizer for one parameter: as many as Adam's, where it takes them one by one.
PER_NODE: Final = 3
PER_PARAMETER: Final = 8
# Some of it is always work. Of 0.9 to 0.99 this comes nearest to what came back of the pairs of
# eager_launch_bound and tiny_work (``benchmarks/accuracy.py``).
MOST: Final = 0.95
_BESIDE: Final = HOST_WORK | {HostClass.LOADER, HostClass.LOCK, HostClass.COMPILE}
# In what is called there the host works, if the source does not say whose the call is.
_HOSTS: Final = frozenset({Phase.ENVIRONMENT, Phase.LOGGING})
# What gives back what it was given: ``detach().cpu().numpy()`` of what is on the CPU is four of
# these, of 0.3 us each.
_SAME: Final = r"aten::(resolve_conj|resolve_neg)|detach"
# Of a backward pass: each node that it goes through, and each parameter that it brings a gradient.
NODE: Final = r"autograd::engine::evaluate_function: .*"
PARAMETER: Final = r"torch::autograd::AccumulateGrad"
# The gradient of a table of embeddings, where it is dense.
TABLE_GRADIENT: Final = r"aten::(embedding|_embedding_bag)_dense_backward"
# Of operators as a trace counts them, with those of the gradient: of calls with 9 to 32 the step
# took 1.4 to 2.9 times as long compiled, with 54 as long, with 99 it took 0.6 of it
# (``called_for_little`` in ``benchmarks/step_costs.py``).
MAX_OPERATORS: Final = 60.0
# Such an operator goes through a whole row by itself.
_RECURRENT: Final = r"aten::(_thnn_\w+|lstm|gru|rnn_\w+|mkldnn_rnn_layer|_cudnn_rnn)"
LAYERS: Final = r"aten::(linear|convolution|bmm|baddbmm)"
# With a bias each layer has two parameters.
_PARAMETERS: Final = 2


@dataclass(frozen=True, slots=True)
class Overhead:
    """How many operators there are, the time for one, and what part of it is no work."""

    per_step: Measure
    each: Measure
    share: float
    # The same where operators cost as little as the cheapest do.
    least: float


def overhead(window: Window) -> Overhead | None:
    """Return what operators cost an eager job on a CPU; ``None``: not known.

    By the time that the thread ran: on a busy machine it does not have a core to itself.
    """
    trace, pace = window.trace, window.steps_per_s
    busy = window.job.mean(m.JOB_MAIN_THREAD)
    if trace is None or pace is None or busy is None or not busy.value:
        return None
    ran = sum(device["kernels"] for device in trace.devices)
    # Who reads a value computes nothing, and no compiler takes it away.
    ran -= trace.count(r"aten::item")
    steps = steps_in(trace)
    if not steps or ran <= 0:
        return None
    step_s = busy.value / pace.value
    # Of the thread's time some is surely spent beside operators.
    elsewhere = sum(
        row.share
        for row in window.rows
        if row.doing in _BESIDE or (row.phase in _HOSTS and row.doing is HostClass.UNCLEAR)
    )
    most = min(MOST, 1 - elsewhere)
    # All of a job without gradients train: its step has nothing else.
    nodes, parameters = (trace.count(name) for name in (NODE, PARAMETER))
    count = min(ran, PER_NODE * nodes + PER_PARAMETER * parameters) if nodes else ran
    trained = count / steps
    # Some give back what they were given; of those that train such are a part, whose time is known
    # for all together.
    same = trace.count(_SAME) + max(0, trace.count(r"aten::to") - trace.count(r"aten::_to_copy"))
    beside = max(0.0, (ran - same) / steps - trained)
    per_step = trained + beside
    return Overhead(
        trace.measure(per_step, "1/step"),
        window.job.measure(step_s / per_step, "s", busy.source),
        min(most, (trained * PER_OPERATOR_S + beside * BESIDE_S) / step_s),
        min(most, (trained * LEAST_S + beside * LEAST_BESIDE_S) / step_s),
    )


def work_free(trace: Traced) -> float:
    """Return what part of the time on a CPU operators take at most, whatever they compute."""
    ran = sum(device["kernels"] for device in trace.devices)
    whole_ns = sum(trace.answer["budget"]["slices"].values())
    return min(MOST, ran * PER_OPERATOR_S * 1e9 / whole_ns) if whole_ns else MOST


def computing(trace: Traced) -> float:
    """Return the part of the time that operators surely compute in: beyond what each costs anyway.

    Their own time, without that of those they call: a product, or numbers drawn. On a slow host, or
    below a profiler that notes more, each costs more.
    """
    mine = (each for each in trace.operators if each["name"].startswith("aten::"))
    own = [(each["total_ns"], each["count"]) for each in mine]
    usual = [ns / count for ns, count in own if count]
    costs = max(PER_OPERATOR_S * 1e9, median(usual) if usual else 0.0)
    return min(1.0, trace.of_whole(sum(max(0.0, ns - count * costs) for ns, count in own)))


def steps_in(trace: Traced) -> float:
    """Return the whole steps in a trace, or how often something ran that runs once in each.

    Of two and a half steps one of these is seen twice, and another three times.
    """
    counts = [int(call["count"]) for call in trace.calls(r"Optimizer\.(step|zero_grad)#.*")]
    return trace.steps or (fmean(counts) if counts else 0)


def optimizers_of(window: Window) -> list[Mapping[str, Any]]:
    """Return what the job's optimizers say of themselves, as the agent reads it."""
    said = window.fact("optimizers")
    return [each for each in said if isinstance(each, Mapping)] if isinstance(said, list) else []


def time_in_optimizers(window: Window) -> Measure:
    """Return the share of the time that they take; raises ``Lacking``."""
    takes, what = window.job.mean(m.PROCESS_OPTIMIZER_TIME), "optimizers that are given no closure"
    return window.needed(takes, Need.INSIDE, f"the time in {what}")


def tensors_of(optimizer: Mapping[str, Any]) -> int:
    """Return how many parameters an optimizer has; 0: it does not say."""
    number = optimizer.get("tensors")
    return number if isinstance(number, int) else 0


@dataclass(frozen=True, slots=True)
class SmallCalls:
    """How often a model is called in a step, and how many operators such a call has."""

    calls: Measure
    operators: Measure


def small_calls(window: Window, trace: Traced) -> SmallCalls | None:
    """Return the calls of a model with too little in each; ``None``: not so, or not known."""
    added, steps = trace.count(PARAMETER), steps_in(trace)
    if not added or not steps or trace.count(_RECURRENT):
        return None
    calls = _PARAMETERS * trace.count(LAYERS) / added
    # Where the main thread is in a model, the loop may be in ``forward``.
    inside = [(row, [x for x in row.frames if x.function == "forward"]) for row in window.rows]
    whole = sum(row.share for row, frames in inside if frames)
    looping = sum(row.share for row, frames in inside if any(map(loops_over_data, frames)))
    if calls < AGAIN or 2 * looping > whole > 0:
        return None
    operators = sum(device["kernels"] for device in trace.devices) / steps / calls
    if operators > MAX_OPERATORS:
        return None
    return SmallCalls(trace.measure(calls, "1/step"), trace.measure(operators, "count"))

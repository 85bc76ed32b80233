"""Each step runs the model once more than it learns from.

## What it sees
A model call that nothing learns from, next to one that trains; or two such programs in a JAX trace.

## Why it costs
A separate loss or accuracy costs a quarter of the step's work.

## How to fix
Use `jax.value_and_grad` with `has_aux=True` instead of `jax.grad`.

## When it is wrong
The loss after the update, or on other data, needs its own pass: every hundred steps is enough. JAX
programs with loops are not judged.

## Documents
D4 §7 (value_and_grad with has_aux).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

from whyidle.monitor.core.amounts import LITTLE
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Knows
from whyidle.monitor.core.measure import SAMPLES
from whyidle.monitor.rules import Fix, Need, Rule, Slice, Verdict, Window
from whyidle.monitor.rules._programs import (
    Program,
    bytes_of,
    calls_in,
    compiled_at,
    name_of,
    products_of,
)
from whyidle.monitor.signals.feeding import idle_pass
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import own

# A gradient is two to three times its forward pass: less where the first layer has none, more where
# something is computed again on purpose.
LEAST_RATIO, MOST_RATIO = 1.8, 4.5
# What optimizers remember of each parameter: one number with momentum, two in Adam, an average of
# the parameters beside them. The loss and some metrics are so many bytes at most.
MOST_OF_A_STATE: Final = 3
NUMBERS: Final = 64
# Smaller programs have no forward pass of a network in them.
LEAST_FLOPS: Final = 10_000
# Where the device is busy the forward pass gives back its share of the work. Elementwise operations
# and the update are no flops that count, but take time: so much of it at least is the products.
# A forward pass of its own does less in the same time than one that the gradient follows: of a
# network over points it took 1.3 times its share.
OF_THE_WORK: Final = 0.6
AT_MOST_OF_THE_WORK: Final = 1.35


def detect(window: Window) -> Verdict:
    """Judge pairs of programs of which one repeats a part of the other, and the lines of a loop."""
    verdict, account = _of_programs(window), window.host
    idle = None if isinstance(verdict, Found) or account is None else idle_pass(account)
    if idle is None or account is None:
        return verdict
    error = account.error(idle.share)
    return Found(
        gain=comes_back(window, idle.share - error, idle.share + error, Side.HOST),
        evidence=(
            Evidence.of("in a pass that trains nothing", window.job.sampled(idle.share)),
            Evidence("a pass that trains is at line", str(idle.trains.line), "", SAMPLES),
        ),
        where=own([idle.where]),
        slice=Slice.COMPUTE,
        confidence=Confidence.INFERRED,
        title="Each step runs the model once more without training on it",
        knows=Knows.CAUSE,
    )


def _of_programs(window: Window) -> Verdict:
    if window.frameworks and not window.uses("jax"):
        return None
    programs = window.fact("largest_executables")
    if not programs:
        return window.lacks(Need.INSIDE)
    trace = window.needed(window.trace, Need.TRACE)
    pair = next(_pairs(programs, trace), None)
    if pair is None:
        return None
    forward, backward = pair
    often = _called(trace, backward, programs)
    work = sum(_flops(p) * _called(trace, p, programs) for p in programs) / often
    share = _flops(forward) / work
    busy = trace.taken(Slice.COMPUTE, Slice.IDLE_DISPATCH)
    measure, names = window.job.measure, [name_of(program) for program in pair]
    most = 2 // len(set(names))
    return Found(
        gain=Gain.between(OF_THE_WORK * share * busy, AT_MOST_OF_THE_WORK * share * busy),
        evidence=(
            Evidence.of(
                f"flops of the forward pass, {names[0]}", measure(_flops(forward), "count")
            ),
            Evidence.of(f"flops of its gradient, {names[1]}", measure(_flops(backward), "count")),
            Evidence.of("of the work of a step", measure(share, "ratio")),
        ),
        where=own(at for name in dict.fromkeys(names) for at in compiled_at(window, name)[:most]),
        slice=Slice.COMPUTE,
    )


def _pairs(programs: list[Program], trace: Traced) -> Iterator[tuple[Program, Program]]:
    """Yield a forward pass and the gradient that repeats it."""
    known = [p for p in programs if _flops(p) >= LEAST_FLOPS and p.get("products")]
    for one, other in permutations(known, 2):
        often = _called(trace, one, known), _called(trace, other, known)
        same = abs(often[0] - often[1]) <= max(1, LITTLE * max(often))
        if min(often) and same and _is_once_a_step(trace, often[1]):
            ratio = _flops(other) / _flops(one)
            if (
                _take_the_same(one, other)
                and LEAST_RATIO <= ratio <= MOST_RATIO
                and products_of(one) < products_of(other)
            ):
                yield one, other


def _take_the_same(forward: Program, backward: Program) -> bool:
    """Tell whether both are given one batch and its parameters, and one of them its state as well.

    A step gives back what it renews: the parameters, and of each what its optimizer remembers.
    """
    given, renewed = bytes_of(backward), bytes_of(backward, "output")
    rest = given - bytes_of(forward)
    # Who gives back more than some numbers hands them on: a teacher, a network of targets.
    states = range(1, MOST_OF_A_STATE + 1) if bytes_of(forward, "output") <= NUMBERS else ()
    more = (0.0, *(renewed * state / (state + 1) for state in states))
    return any(abs(rest - each) <= LITTLE * given for each in more)


def _flops(program: Program) -> float:
    return 0.0 if program.get("loops") else float(program.get("flops") or 0)


def _called(trace: Traced, program: Program, programs: Sequence[Program]) -> float:
    """Return how often a program was called; those of one name are taken to share its calls."""
    name = name_of(program)
    alike = sum(1 for each in programs if name_of(each) == name and _flops(each) >= LEAST_FLOPS)
    return calls_in(trace, name) / max(1, alike)


def _is_once_a_step(trace: Traced, number: float) -> bool:
    """Tell whether something else of the step is called as often."""
    if trace.steps:
        return abs(number - trace.steps) <= max(1, LITTLE * number)
    others = [call["count"] for call in trace.calls(r"PjitFunction\(.*\)")]
    return any(abs(number - other) <= max(1, LITTLE * number) for other in others)


rule = Rule(
    title="The forward pass runs twice: for the loss and the gradient",
    documents=("D4 §7",),
    fixes={
        "jax": Fix(
            "Compute the loss and its gradient in one call. Return what else you print from"
            " that call too.",
            """\
@jax.jit
def loss_and_gradient(params, x, y):
    of_loss = jax.value_and_grad(loss, has_aux=True)
    (value, accuracy), gradient = of_loss(params, x, y)
    return value, accuracy, gradient""",
        ),
        "pytorch": Fix(
            "Reuse the output that the loss is computed from. What has to be computed after the"
            " update is enough every hundred steps.",
            """\
out = model(x)
loss = criterion(out, y)
loss.backward()
optimizer.step()
right = (out.detach().argmax(1) == y).sum()  # not: model(x) once more""",
        ),
    },
)

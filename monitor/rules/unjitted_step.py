"""JAX runs the step operation by operation: it is not compiled whole.

## What it sees
A trace in which a step calls many small programs of JAX, each a single operation with a name of
its own ("multiply", "subtract"), and hardly any function that the user compiled.

## Why it costs
Outside of `jax.jit` each operation is a call of its own: checked, looked up and launched by Python,
for ten to a hundred microseconds, and its result goes to memory and back. Automatic differentiation
is done anew in each step as well. A GPU is through with such an operation before the next is there.

## How to fix
Put the whole step into one function and compile it: forward, gradient and update. What is printed
or stored comes out of it as a result. Branches that depend on values become `jnp.where` or
`lax.cond`; settings become static arguments.

## When it is wrong
To debug a program one may run it with `jax.disable_jit()` on purpose. A job
that computes something once per hour outside of the step loses nothing by that. Operations so large
that each fills the device for milliseconds gain little. A step that is compiled again each time
runs such operations while it is traced: then only `retracing` is reported.

## Documents
D1 (core mechanisms: no jit) and D4 §1 (jit).
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import Evidence, Fix, Found, Gain, Need, Place, Verdict
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.activity import drawing
from whyidle.monitor.signals.eager import OWN, Eager, eager
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import at
from whyidle.monitor.signals.window import Window

# A step of one compiled program has a handful of calls around it.
LEAST_CALLS: Final = 10
# Fewer kinds are a loop over one program, and that is another fault.
LEAST_KINDS: Final = 5
# Most of what is called; beside a compiled step such operations are few.
LEAST_SHARE: Final = 0.5
# A compiled step is one call: as costly as one of the single operations where it has as few
# arguments, as 3.6 of them with 16 arrays (a trace of a network with four layers).
CALL_LEAST, CALL_MOST = 1, 4
# The compiler joins operations: of their own time it leaves all at most, and there a third.
JOINED: Final = 0.36

# As many functions as a recording lists.
MOST_COMPILED: Final = 20


def detect(window: Window) -> Verdict:
    """Judge the operations that JAX is called for one by one."""
    if window.frameworks and not window.uses("jax"):
        return None
    trace = window.trace
    if trace is None:
        return window.lacks(Need.TRACE)
    found = eager(trace)
    if found is None:
        return None
    if found.kinds < LEAST_KINDS or found.in_a_step < LEAST_CALLS or found.share < LEAST_SHARE:
        return None
    return Found(
        gain=_gain(window, trace, found),
        evidence=tuple(_evidence(window, trace, found)),
        where=_where(window),
        slice=Slice.IDLE_DISPATCH,
    )


def _where(window: Window) -> tuple[Place, ...]:
    """Return the lines that had single operations compiled, those the job is at most first."""
    places = window.where_compiled(most=MOST_COMPILED)
    return at(window.job, (place for place in places if place.function in OWN))


def _gain(window: Window, trace: Traced, found: Eager) -> Gain:
    """Keep one call for all of a step, and the operations, joined or as they are."""
    drawn = drawing(window.job)
    # What the host draws meanwhile is in none of these calls: another fault.
    mine = 1.0 if drawn is None else 1 - drawn.share.value
    parts = [trace.share(part) for part in (Slice.COMPUTE, Slice.IDLE_DISPATCH)]
    compute, dispatch = (0.0 if part is None else part.value for part in parts)
    if not dispatch:
        return Gain(0.0, 0.0)
    # What is not known is spread over both in proportion.
    compute, dispatch = compute / (compute + dispatch), dispatch / (compute + dispatch)
    most = compute + dispatch * min(1.0, CALL_MOST / found.in_a_step)
    least = JOINED * compute + dispatch * min(1.0, CALL_LEAST / found.in_a_step)
    return Gain.between(mine * (1 - most), mine * (1 - least))


def _evidence(window: Window, trace: Traced, found: Eager) -> list[Evidence]:
    evidence = [
        Evidence.of("single operations in a step, about", trace.measure(found.in_a_step, "1/step")),
        Evidence.of("of all calls of programs", trace.measure(found.share, "ratio")),
    ]
    dispatch = trace.share(Slice.IDLE_DISPATCH)
    if dispatch is not None:
        evidence.append(Evidence.of("host dispatch", dispatch))
    programs = window.fact("executables")
    if isinstance(programs, int):
        evidence.append(
            Evidence.of("compiled programs alive", window.job.measure(programs, "count"))
        )
    return evidence


rule = Rule(
    title="JAX runs the step operation by operation",
    documents=("D1", "D4 §1"),
    symptom_of=("retracing",),
    fixes={
        "jax": Fix(
            "Compile the whole step: forward, gradient and update in one function.",
            """\
@jax.jit
def step(params, x, y):
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
    return params, value""",
        ),
    },
    detect=detect,
)

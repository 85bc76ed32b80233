"""The JAX step is not compiled as a whole, and runs op by op.

## What it sees
The main thread in JAX's own Python, or single operations ("multiply", "subtract") in a trace or
among compiled programs.

## Why it costs
Each operation takes ten to a hundred microseconds of Python.

## How to fix
Return what you print or store. Branches on values become `jnp.where` or `lax.cond`, settings static
arguments. Keep data sets as NumPy arrays, and pass a batch at a time.

## When it is wrong
Operations of milliseconds gain little. If a step is compiled again each time, see `retracing`.

## Documents
D1 (core mechanisms: no jit) and D4 §1 (jit).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.source import called, function_at, in_loop, readable
from whyidle.monitor.core.amounts import LITTLE, MOSTLY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.core.host_class import HOST_WORK, HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.libraries.frames import package_of
from whyidle.monitor.rules import Fix, Need, Rule, Slice, Verdict, Window
from whyidle.monitor.runs.stacks import Chain
from whyidle.monitor.signals.activity import drawing, fetches
from whyidle.monitor.signals.eager import (
    CONTROL,
    OWN,
    Eager,
    EagerTime,
    eager,
    eager_time,
    kinds_alive,
)
from whyidle.monitor.signals.recompiled import Recompiled, compiled_again
from whyidle.monitor.signals.user_lines import asking, at, own

# A step of one compiled program has a handful of calls around it.
LEAST_CALLS: Final = 10
# Of a trace's calls fewer kinds are a loop over one program, and that is another fault. Stack
# samples tell single operations from it; a recording names the five most frequent programs that
# are alive.
LEAST_KINDS, LEAST_ALIVE = 5, 2
# A compiled step is one call: as costly as one of the single operations where it has as few
# arguments, as 3.6 of them with 16 arrays (a trace of a network with four layers).
CALL_LEAST, CALL_MOST = 1, 4
# The compiler joins operations: of their own time it leaves all at most, and there a third.
JOINED: Final = 0.36
# Without a trace: so much of the time in them may be work, which stays.
WORK_MOST: Final = 0.75

_SWITCHES: Final = re.compile(r"disable_jit|DISABLE_JIT")
SWITCHED_OFF: Final = Fix(
    "Turn it off, and unset JAX_DISABLE_JIT. While it is on, jit compiles nothing.",
    'jax.config.update("jax_disable_jit", False)',
)
SWITCHED: Final = "jax_disable_jit is on: nothing is compiled"
BATCHES: Final = "Batches are made one JAX operation at a time"
OF_NUMPY: Final = Fix(
    "Keep the data as NumPy arrays, and pass one batch at a time. Or make the batch in one"
    " compiled function.",
    """\
images = np.asarray(images)  # once, before the loop
batch = jax.device_put(images[order[start : start + size]])""",
)
# What Keras calls in turn is compiled, and what it does around it nobody can compile.
_OF_KERAS: Final = frozenset({"keras", "tf_keras"})
_FOR_A_BATCH: Final = frozenset(("predict", "predict_on_batch", "train_on_batch", "test_on_batch"))
SETS_UP: Final = "Each call of Keras sets up more than it computes"
FEW_CALLS: Final = Fix(
    "Call predict for many samples at once. For a few call the model itself in a compiled"
    " function. In place of train_on_batch in a loop use one fit over the batches.",
    """\
@jax.jit
def compiled(weights, others, x):
    return model.stateless_call(weights, others, x, training=False)[0]

def act(x):  # for a few samples, in place of model.predict(x)
    weights = [each.value for each in model.trainable_variables]
    others = [each.value for each in model.non_trainable_variables]
    return compiled(weights, others, x)""",
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of the single operations, each where it is."""

    time: EagerTime | None
    error: float
    calls: Eager | None
    # Loops of ``jax.lax`` that are compiled in each call.
    loops: tuple[Recompiled, ...]
    where: tuple[Place, ...]

    @property
    def makes_batches(self) -> bool:
        """Whether the line that takes the most makes what the steps compute on."""
        return bool(self.where) and fetches(self.where[0])

    @property
    def compiling(self) -> float:
        """The share of the time in which such loops are compiled."""
        return min(1.0, sum(loop.share.value for loop in self.loops))

    def is_op_by_op(self, alive: int) -> bool:
        """Tell whether much of the step is made of single operations, by their time or number."""
        takes = self.time is not None and self.time.share - self.error >= LITTLE
        if self.calls is None:
            return takes and (self.makes_batches or alive >= LEAST_ALIVE)
        # Where the thread was found in them, they may be few: a gather of a large array is costly.
        many = self.calls.kinds >= LEAST_KINDS and self.calls.in_a_step >= LEAST_CALLS
        return takes or (many and self.calls.share >= MOSTLY)


def detect(window: Window) -> Verdict:
    """Judge the operations that JAX is called for one by one."""
    host, trace = window.host, window.trace
    if trace is None and host is None:
        return window.lacks(Need.TRACE)
    time = None if host is None else eager_time(host)
    again = compiled_again(window.job) if window.job.inside else []
    loops = tuple(one for one in again if one.function.function in CONTROL)
    seen = _Seen(
        time,
        0.0 if host is None or time is None else host.error(time.share),
        None if trace is None else eager(trace),
        loops,
        _where(window, time, loops),
    )
    alive = kinds_alive(window.fact("executables_by_name"))
    if not seen.loops and not seen.is_op_by_op(alive):
        return None
    gain = _gain(window, seen)
    if gain.high < LITTLE:
        return None
    # Then what is written is right, and runs one by one all the same.
    is_off = window.fact("disable_jit") is True
    title, fix = (SWITCHED, SWITCHED_OFF) if is_off else (BATCHES, OF_NUMPY)
    if not is_off and _are_of_keras(window, seen.where):
        title, fix = SETS_UP, FEW_CALLS
    is_special = is_off or seen.makes_batches or fix is FEW_CALLS
    return Found(
        gain=gain,
        evidence=_evidence(window, seen),
        where=(asking(window.job, _SWITCHES) if is_off else ()) or seen.where,
        slice=Slice.IDLE_COMPILE if 2 * seen.compiling > gain.high else Slice.IDLE_DISPATCH,
        confidence=Confidence.INFERRED if seen.calls is None else Confidence.MEASURED,
        title=title if is_special else None,
        fixes={"jax": fix} if is_special else None,
    )


def _are_of_keras(window: Window, where: tuple[Place, ...]) -> bool:
    """Tell whether most of it is in what Keras does for calls that the user makes in a loop."""
    lines = {(place.file, place.line) for place in where}
    shares = [
        (_is_of_keras(chain), counts.samples)
        for chain, counts in window.job.stacks.chains.items()
        if chain.user is not None and chain.user[:2] in lines
    ]
    return 2 * sum(n for is_its, n in shares if is_its) > sum(n for _, n in shares)


def _is_of_keras(chain: Chain) -> bool:
    if chain.user is None or chain.called is None:
        return False
    names = {name.rpartition(".")[2] for name in called(chain.user.file, chain.user.line)}
    is_its = package_of(chain.called.file) in _OF_KERAS and bool(names & _FOR_A_BATCH)
    return is_its and any(in_loop(line.file, line.line) for line in chain.frames)


def _where(
    window: Window, time: EagerTime | None, compiled: tuple[Recompiled, ...]
) -> tuple[Place, ...]:
    """Return the lines that run single operations, or had them compiled; most time first."""
    places = [] if time is None else list(time.where)
    loops = []
    for one in compiled:
        if (file := one.function.file) and (line := one.function.line):
            name = function_at(file, line) if readable(file) else one.function.function
            loops.append(Place(file, line, name, one.share.value))
    found = own(sorted((*loops, *places), key=lambda place: -(place.share or 0.0)))
    # As many functions as a recording lists.
    listed = window.where_compiled(most=20)
    return found or at(window.job, (place for place in listed if place.function in OWN))


def _gain(window: Window, seen: _Seen) -> Gain:
    """Keep one call for all of a step, and the operations, joined or as they are.

    What NumPy does in the place of JAX is no call at all.
    """
    least, most = _taken(window, seen)
    # The least and the most of that time in which the operations themselves run: what is not known
    # is spread over both in proportion.
    work_least, work_most, trace = 0.0, WORK_MOST, window.trace
    both = 0.0 if trace is None else trace.taken(Slice.COMPUTE, Slice.IDLE_DISPATCH)
    if trace is not None and both:
        work_least = work_most = trace.taken(Slice.COMPUTE) / both
    few, many = (LEAST_CALLS, math.inf) if seen.calls is None else 2 * (seen.calls.in_a_step,)
    few, many = (math.inf, math.inf) if seen.makes_batches else (few, many)
    stays_most = work_most + (1 - work_most) * min(1.0, CALL_MOST / few)
    stays_least = JOINED * work_least + (1 - work_least) * min(1.0, CALL_LEAST / many)
    low, high = (
        seen.compiling + taken * (1 - stays)
        for taken, stays in ((least, stays_most), (most, stays_least))
    )
    # What other threads compute on a CPU, joined and spread over all cores, stays. Compilers have
    # threads, too.
    account, runs, most = window.core_account, window.computing, 1.0
    if account is not None and runs is not None and window.device == "cpu" and not seen.loops:
        most -= JOINED * runs / account.cores
    return Gain.between(min(low, most), min(high, most))


def _evidence(window: Window, seen: _Seen) -> tuple[Evidence, ...]:
    job, trace, calls, programs = window.job, window.trace, seen.calls, window.fact("executables")
    measures: dict[str, Measure | None] = {}
    if trace is not None and calls is not None:
        measures = {
            "single operations in a step, about": trace.measure(calls.in_a_step, "1/step"),
            "of all calls of programs": trace.measure(calls.share, "ratio"),
        }
    if seen.time is not None and seen.time.share:
        measures["main thread in single operations"] = job.sampled(seen.time.share)
    if trace is not None and calls is not None:
        measures["host dispatch"] = trace.share(Slice.IDLE_DISPATCH)
    if seen.loops:
        compiling = job.measure(seen.compiling, "ratio")
        measures["compiling loops of jax.lax in each call"] = compiling
    if isinstance(programs, int):
        measures["compiled programs alive"] = job.measure(programs, "count")
    return Evidence.known(measures)


def _taken(window: Window, seen: _Seen) -> tuple[float, float]:
    """Return how much of the time the single operations take, compiling apart."""
    drawn = drawing(window.job)
    # What the host draws meanwhile is in none of these calls: another fault.
    most = (1.0 if drawn is None else 1 - drawn.share.value) - seen.compiling
    if seen.time is None or window.host is None:
        return max(0.0, most), max(0.0, most)
    if seen.loops or (seen.calls is not None and seen.calls.share >= MOSTLY):
        # What else the host does is known; the rest are calls, launched or waited for.
        others = window.host.share(*HOST_WORK)
        most = min(most, 1 - others + window.host.error(others) - seen.compiling)
    else:
        # Each operation is compiled once by itself, for each shape.
        compiled = window.host.share(HostClass.COMPILE)
        most = min(most, seen.time.share + seen.error + compiled)
    return max(0.0, min(most, seen.time.share - seen.error)), max(0.0, most)


rule = Rule(
    title="The JAX step is not compiled and runs op by op",
    documents=("D1", "D4 §1"),
    fixes={
        "jax": Fix(
            "Compile the whole step: forward, gradient and update in one function.",
            """\
@jax.jit
def step(params, x, y):
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
    return params, value""",
        )
    },
    only=("jax",),
)

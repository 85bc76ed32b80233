"""The same function is compiled again and again.

## What it sees
The agent hears of each compilation of JAX and of `torch.compile`, and of each graph that
TensorFlow traces: the function, the line that called it (for PyTorch: where it begins), and what
differed from the times before. The fault is there when one function was compiled ten times or more
from the same line (for PyTorch five times), and it goes on after the job has warmed up. Where
nothing differed, and in a loop, a line that clears what was compiled is named first; where an
argument did, the line of the file that gives it stands behind the call.

## Why it costs
A compiled program fits arguments of one shape and one type. A batch of another length, a Python
number where an array was, or a function that is made anew each time are traced, lowered and
compiled from the start: a second of waiting in place of a step of milliseconds.

## How to fix
Bring the arguments to a few shapes: pad to the next of some lengths, and mask what was added. Make
the last batch as large as the others, or drop it. Define the function once, outside of the loop;
name arguments that are settings as static only where they take few values. Keep types as they are:
a Python float beside an array of float32 counts as another type. `tf.function` traces anew for each
Python number that it is given: pass it as a tensor. PyTorch's compiler leaves a
function to Python for good after its eighth program (`torch._dynamo.config.recompile_limit`), so
that the waiting ends by itself, and the function is slow from then on.

## When it is wrong
A job that warms up compiles many functions once, and that ends by itself. Where lengths repeat,
each is compiled once, and after some time no new one comes: then waiting is a fix, too. Padding
costs work; it is not worth it where one length stands for most batches. What the
device works while the host compiles stays, and is in the range only where a trace has whole steps.

## Documents
D4 §1 (jit with stable shapes) and its summary (pad and mask). There pmap is one of the seven
transformations; it compiles anew for each shape just as jit does.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Final

from whyidle.monitor.code.given import makers
from whyidle.monitor.code.source import called, nodes_at
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import (
    MOST_LOST,
    PROBES,
    Evidence,
    Fix,
    Found,
    Framework,
    Gain,
    Need,
    Place,
    Verdict,
)
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.eager import CONTROL
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.recompiled import Recompiled, compiled_again
from whyidle.monitor.signals.sampling import SURE
from whyidle.monitor.signals.user_lines import asking, own
from whyidle.monitor.signals.window import Window

# Less is what a program now and then costs: "low" in the contract begins at half of it.
LEAST: Final = 0.02
# One compilation in the steady part is a new evaluation, two are the first that go on.
LEAST_NOW: Final = 2
# The first run of what was compiled takes longer: of 12 shapes of one step on a CPU 1.5 times as
# long as the second (new pages, a program that is in no cache), and the search for a program and
# the way into it a tenth of what is left. All runs grow by padding: by nothing where lengths lie
# close below the next one of the few, by at most all where powers of two are used.
AFTER_THE_FIRST: Final = 0.57
# So many executions JAX takes ahead on a CPU (its client's own limit): then who calls it waits.
MOST_AHEAD: Final = 32
# PyTorch makes one program that fits all lengths, and pads nothing.
GROWN: Final = {"jax": 2.0, "torch": 1.0}
# TensorFlow optimizes and places a graph in its first run, which the agent does not see: that took
# 0.50 to 0.75 of what tracing it took (perceptrons of 2 and 20 layers, a convolutional and a
# recurrent network on a CPU), and four times as much where XLA compiles it.
OPTIMIZED, OPTIMIZED_MOST, OPTIMIZED_BY_XLA = 0.5, 0.75, 4.0
# What PyTorch's compiler says where a size has changed; of other reasons each has its own cure.
_SIZE: Final = re.compile(r"size|shape|stride|\blen\(|ndim")
LOOK: Final = Fix(
    "Keep what the reason names as it is from step to step, or pass it as a tensor.",
    """\
torch._logging.set_logs(recompiles=True)  # prints each reason, with the line of your code""",
)
# Of the reasons that the agent gives for TensorFlow: what is part of the graph, and who is new.
_VALUE: Final = re.compile(r"the Python value")
_ANEW: Final = re.compile(r"made anew each time")
_AS_BEFORE: Final = re.compile("all arguments are as before")
_OBJECT: Final = re.compile(r"now (the \w+ at 0x|an object that is gone)")
AS_TENSOR: Final = Fix(
    "Pass what changes as a tensor: a Python number is part of the graph, and each makes another.",
    """\
loss = step(x, tf.constant(number))""",
)
SAME: Final = Fix(
    "Make the object once and pass the same each time, or only its tensors: each new object makes"
    " another graph.",
    """\
settings = Settings()  # before the loop
for x, y in batches:
    loss = step(x, y, settings)""",
)
ONCE: Final = Fix(
    "Make the function once, before the loop: each new one begins without a graph.",
    """\
step = tf.function(train_step)
for x, y in batches:
    loss = step(x, y)""",
)
# What TensorFlow calls the functions of a pipeline; these of Keras make one in each call.
_PIPELINE: Final = re.compile(r"Dataset_\w+")
_MAKES_PIPELINE: Final = re.compile(r".+\.(predict|evaluate|fit)")
CALL_MODEL: Final = Fix(
    "Call the model itself on a few samples: predict, evaluate and fit make a pipeline and a loop"
    " in each call.",
    """\
outputs = model(samples, training=False)  # not: model.predict(samples)""",
)
PIPELINE_ONCE: Final = Fix(
    "Make the pipeline once, before the loop, and go through it again and again.",
    """\
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
for epoch in range(epochs):
    for batch in data:
        step(batch)""",
)
AS_ARRAY: Final = Fix(
    "Pass what changes as an array: what is static is a part of the program, and each value makes"
    " another. Where nothing is static, a sharding or a setting of JAX changes, or its caches are"
    " cleared: keep these as they are.",
    """\
params, loss = step(params, batch, jnp.asarray(noise_level))  # a number for each step""",
)
JIT_ONCE: Final = Fix(
    "Make the function once, before the loop, and pass what it needs as arguments: each new one"
    " begins without a program.",
    """\
step = jax.jit(train_step)
for batch in batches:
    params, loss = step(params, batch)  # not: jax.jit(lambda p: train_step(p, batch))(params)""",
)
# By the reason that the agent gives; of others the rule's own cure.
CURES: Final[dict[Framework, tuple[tuple[re.Pattern[str], Fix], ...]]] = {
    "jax": ((_AS_BEFORE, AS_ARRAY), (_ANEW, JIT_ONCE)),
    "tensorflow": ((_VALUE, AS_TENSOR), (_ANEW, ONCE), (_OBJECT, SAME)),
}
# Who forgets all that was compiled.
_CLEARS: Final = re.compile(
    r"\b(clear_caches|clear_backends|clear_cache|clear_session|reset_default_graph"
    r"|(_dynamo|compiler)\.reset)\("
)
# As in "at x: now f32[99,4], before f32[20,4]".
_ARGUMENT: Final = re.compile(r"at \S+: now ")
KEEP: Final = Fix(
    "Clear nothing between the steps: all that was compiled is compiled anew after it. Memory that"
    " grows by compiled programs is that of shapes that change: pad these."
)


def detect(window: Window) -> Verdict:
    """Judge the functions that were compiled again and again."""
    job, rate = window.job, window.job.mean(m.PROCESS_COMPILES)
    if not job.inside:
        return window.lacks(Need.INSIDE)
    # Loops of JAX's own that are compiled in each call miss a function around them: unjitted_step.
    again = [one for one in compiled_again(job) if one.function.function not in CONTROL]
    lost = min(1.0, sum(one.share.value for one in again))
    # What warms up ends by itself.
    goes_on = rate is None or round(rate.value * job.seconds) >= LEAST_NOW
    if not again or not goes_on or lost < LEAST:
        return None
    worst = again[0].function
    reason, framework = worst.reason or "", PROBES[worst.framework]
    clearing = _clearing(window, reason)
    by_size = framework != "pytorch" or bool(_SIZE.search(reason))
    gain = _gain(window, again, lost, by_size=by_size, clears=bool(clearing))
    places = [_place(one.function) for one in again if one.function.file]
    if _PIPELINE.fullmatch(worst.function):
        return _of_pipeline(window, again, gain, own(places))
    # Another cure than the rule's own, where the reason names another cause.
    cure = next((cure for like, cure in CURES.get(framework, ()) if like.search(reason)), None)
    if not by_size:
        cure = LOOK
    if clearing:
        cure = KEEP
    # Where an argument changes, the lines that give what its call is given.
    at = _place(worst)
    is_given = _ARGUMENT.match(reason)
    given = makers(CodeLine(at.file, at.line, at.function))[:2] if is_given else ()
    made = (Place(each.file, each.line, each.function) for each in given)
    return Found(
        gain=gain,
        fixes=None if cure is None else {framework: cure},
        evidence=tuple(_evidence(window, again)),
        where=own((*clearing, *places[:1], *made, *places[1:])),
        slice=Slice.IDLE_COMPILE,
        title=f"'{worst.function}' is compiled again and again"
        + (": what was compiled is cleared" if clearing else ""),
        frameworks=tuple(dict.fromkeys(PROBES[one.function.framework] for one in again[:3])),
    )


def _of_pipeline(
    window: Window, again: list[Recompiled], gain: Gain, where: tuple[Place, ...]
) -> Found:
    """Judge pipelines of TensorFlow's that are made anew: compiling them is only a part of it."""
    at = where[:1]
    called_at = [name for place in at for name in called(place.file, place.line)]
    by = next((name for name in called_at if _MAKES_PIPELINE.fullmatch(name)), None)
    rows = () if window.host is None else window.host.rows
    whole = sum(
        row.share
        for row in rows
        for place in at
        if any((line.file, line.line) == (place.file, place.line) for line in row.frames)
    )
    return Found(
        # What the call does besides may be the model.
        gain=Gain.between(gain.low, max(gain.high, whole)),
        fixes={"tensorflow": PIPELINE_ONCE if by is None else CALL_MODEL},
        evidence=tuple(_evidence(window, again)),
        where=where,
        slice=Slice.IDLE_COMPILE,
        title=f"{by}() makes a data pipeline in each call"
        if by
        else "A data pipeline is made again and again",
        frameworks=("tensorflow",),
    )


def _clearing(window: Window, reason: str | None) -> tuple[Place, ...]:
    """Return the lines that clear what was compiled: in a loop, or where no argument changed."""
    again = _AS_BEFORE.match(reason or "")
    kinds = (ast.For, ast.While, *((ast.FunctionDef,) if again else ()))
    return tuple(
        place
        for place in asking(window.job, _CLEARS)
        if any(isinstance(x, kinds) for x in nodes_at(place.file, place.line))
    )


def _first_runs(window: Window) -> float:
    """Return what part of the steps at most is the first run of a program."""
    each = window.compiles_per_step
    return 1.0 if each is None else min(1.0, each.value)


def _by_chance(
    window: Window, lost: tuple[float, float], again: list[Recompiled], *, alike: bool = False
) -> tuple[float, float]:
    """Return the least and the most that compiling may take in the long run.

    How many compilations fell into this window is chance; so is what they are to the rest.
    ``alike``: one takes as long as another, so that where each step has one nothing is by chance.
    """
    rate = window.job.mean(m.PROCESS_COMPILES)
    number = sum(one.function.count - one.function.cached for one in again)
    number = number if rate is None else min(number, round(rate.value * window.job.seconds))
    other = 1 - _first_runs(window) if alike and window.compiles_per_step is not None else 1.0
    factor = 1 + SURE * math.sqrt(other / max(1, number))
    least, most = (min(MOST_LOST, share) for share in lost)
    least, most = least / (1 - least) / factor, most / (1 - most) * factor
    return least / (1 + least), most / (1 + most)


def _gain(
    window: Window, again: list[Recompiled], lost: float, *, by_size: bool, clears: bool
) -> Gain:
    job, host, worst = window.job, window.host, again[0].function
    if worst.framework == "tensorflow":
        # The tracing, and what the first run of each graph takes besides.
        low, high = _by_chance(window, (lost, lost), again, alike=True)
        most = OPTIMIZED_BY_XLA if window.fact("jit_compile") else OPTIMIZED_MOST
        gain = Gain.between(low * (1 + OPTIMIZED), high * (1 + most))
    else:
        least = lost
        if host is not None and (sampled := host.share(HostClass.COMPILE)):
            # What is compiled within another function counts in both; samples count a moment once.
            least = min(lost, max(0.0, sampled - host.error(sampled)))
        # Who pads to few lengths computes more; where no argument changed there is none to pad.
        # Of a function made anew hardly anything came back in one program of four: it stays wide.
        is_same = _AS_BEFORE.match(worst.reason or "")
        grown = 1.0 if clears or is_same else GROWN[worst.framework]
        # A run is no longer than its compilation, so that all first runs take no more than that
        # does. What is left may grow.
        first = _first_runs(window)
        ends = [_back(x, first, grown) for x in _by_chance(window, (least, lost), again)]
        gain = Gain.between(ends[0][0], max(high for _, high in ends))
    if again[0].is_few:
        # At least what they are of all that was recorded.
        spent = sum(one.function.ns for one in again) / 1e9 / (job.seconds + job.warm_s)
        gain = Gain(min(gain.low, spent), gain.high)
    # What else changes cannot always be kept as it is.
    return _beside(window, gain if by_size else Gain.between(lost / 2, max(lost, gain.high)))


def _back(lost: float, first: float, grown: float) -> tuple[float, float]:
    runs = min(lost, first * (1 - lost))
    left = 1 - lost - (1 - AFTER_THE_FIRST) * runs
    least = 1 - min(1.0, grown * left) if grown > 1 else lost
    return least, 1 - left


def _beside(window: Window, gain: Gain) -> Gain:
    """Return what is left of it where a trace of whole steps shows the device at work meanwhile."""
    if window.trace is None:
        return gain
    stays = comes_back(window, gain.low, gain.high, Side.HOST)
    if window.device != "cpu":
        return Gain(min(gain.low, stays.low), min(gain.high, stays.high))
    # There the compiler takes cores from that work, which then takes longer than without it.
    return Gain(min(gain.low, max(stays.low, gain.low - _asked_for_before(window))), gain.high)


def _asked_for_before(window: Window) -> float:
    """Return the most of the time in which a CPU does what it was given before a compilation."""
    step, pace, rate = window.step_s, window.steps_per_s, window.job.mean(m.PROCESS_COMPILES)
    if step is None or pace is None or not pace.value or rate is None or not window.uses("jax"):
        return 1.0
    # Of a job that reads only now and then most steps are as short as their launch.
    longest = max(step.value, (1 - window.job.means.get(m.JOB_COMPILE, 0.0)) / pace.value)
    return rate.value * longest * MOST_AHEAD


def _evidence(window: Window, again: list[Recompiled]) -> list[Evidence]:
    job, worst = window.job, again[0].function
    programs = (window.fact("executables_by_name") or {}).get(f"jit_{worst.function}")
    found = [
        Evidence.of("time spent compiling", again[0].share),
        Evidence.of(f"compilations of '{worst.function}'", job.measure(worst.count, "count")),
    ]
    if worst.reason:
        found.append(job.said("why", worst.reason))
    if isinstance(programs, int) and programs > 1:
        alive = job.measure(programs, "count")
        found.append(Evidence.of("compiled programs of this name alive", alive))
    return found


def _place(function: Compiled) -> Place:
    return Place(function.file or "", function.line or 0, function.function)


rule = Rule(
    title="The same function is compiled again and again",
    documents=("D4 §1", "D4 summary"),
    fixes={
        "jax": Fix(
            "Pad batches to a few lengths and mask what was added.",
            """\
def padded(array, bucket=128):
    return np.pad(array, ((0, -len(array) % bucket), (0, 0)))

real = np.arange(len(padded(x))) < len(x)
loss = step(padded(x), real)  # within: (error * real[:, None]).sum() / real.sum()""",
        ),
        "pytorch": Fix(
            "Tell the compiler which dimension changes, so that one program fits all its sizes.",
            """\
torch._dynamo.mark_dynamic(batch, 0)
out = compiled(batch)""",
        ),
        "tensorflow": Fix(
            "Give tf.function a signature whose changing dimension is None.",
            """\
@tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32)])
def step(x):
    return model(x)""",
        ),
    },
    detect=detect,
)

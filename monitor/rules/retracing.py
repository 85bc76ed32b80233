"""The same function is compiled again and again.

## What it sees
In JAX, `torch.compile` or TensorFlow: one function compiled ten times or more from one line (in
PyTorch five), and the argument that differed.

## Why it costs
Another length, a Python number instead of an array, or a new function compiles from scratch: a
second instead of milliseconds.

## How to fix
Drop the last batch, or make it as large as the others. Define functions once, outside the loop.
Make only settings with few values static. Keep types constant; `tf.function` traces again for each
Python number: pass a tensor. PyTorch gives up on a function after eight programs
(`torch._dynamo.config.recompile_limit`), and it then stays slow.

## When it is wrong
Warm-up and repeated lengths end by themselves. Padding costs work, too much if most batches have
one length.

## Documents
D4 §1 (jit with stable shapes) and its summary (pad and mask). Its pmap compiles again for each
shape, as jit does.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code.given import makers
from whyidle.monitor.code.source import MODULE, called, function_at, functions, in_loop, readable
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import PROBES, Evidence, Found, Gain, Place
from whyidle.monitor.rules import Fix, Framework, Need, Rule, Slice, Verdict, Window
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.eager import CONTROL
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.recompiled import Recompiled, compiled_again, taken
from whyidle.monitor.signals.user_lines import asking, own

# Less is what a program now and then costs: "low" in the contract begins at half of it.
LEAST: Final = 0.02
# One compilation in the steady part is a new evaluation, two are the first that go on.
LEAST_NOW: Final = 2
# All runs grow by padding: by nothing where lengths lie close below the next one of the few, by at
# most all where powers of two are used. PyTorch makes one program that fits all lengths.
GROWN: Final = 2.0
ALIVE: Final = "compiled programs of this name alive"
# What PyTorch's compiler says where no size has changed: of these reasons each has its own cure.
_NO_SIZE: Final = re.compile(r"^(?!.*(size|shape|stride|\blen\(|ndim))", re.DOTALL)
LOOK: Final = Fix(
    "Keep what the reason names constant, or pass it as a tensor.",
    """\
# prints each reason, with the line of your code
torch._logging.set_logs(recompiles=True)""",
)
# Of the reasons that the agent gives for TensorFlow: what is part of the graph, and who is new.
_VALUE: Final = re.compile(r"the Python value")
_MADE: Final = re.compile(r"made \w+ each time")
_AS_BEFORE: Final = re.compile("all arguments are as before")
_OBJECT: Final = re.compile(r"now (the \w+ at 0x|an object that is gone)")
AS_TENSOR: Final = Fix(
    "Pass what changes as a tensor. A Python number is part of the graph, and each makes another.",
    "loss = step(x, tf.constant(number))",
)
SAME: Final = Fix(
    "Make the object once and reuse it, or pass only its tensors. Each new object makes another"
    " graph.",
    """\
settings = Settings()  # before the loop
for x, y in batches:
    loss = step(x, y, settings)""",
)
ONCE: Final = Fix(
    "Make the function once, before the loop. Each new one begins without a graph.",
    """\
step = tf.function(train_step)
for x, y in batches:
    loss = step(x, y)""",
)
# What TensorFlow calls the functions of a pipeline; these of Keras make one in each call.
_PIPELINE: Final = re.compile(r"Dataset_\w+")
_MAKES_PIPELINE: Final = re.compile(r".+\.(predict|evaluate|fit)")
FOR_FEW: Final = Fix(
    "Call it for many samples, or use train_on_batch and test_on_batch. Each call of evaluate or"
    " fit makes a pipeline and a loop."
)
CALL_MODEL: Final = Fix(
    "Call model(x, training=False) in place of predict(). Each call of predict makes a pipeline and"
    " a loop.",
    "outputs = model(samples, training=False)  # not: model.predict(samples)",
)
PIPELINE_ONCE: Final = Fix(
    "Make the pipeline once, before the loop, and reuse it.",
    """\
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
for epoch in range(epochs):
    for batch in data:
        step(batch)""",
)
AS_ARRAY: Final = Fix(
    "Pass what changes as an array, not as a static argument. Each value of a static argument"
    " makes another program. Where nothing is static, a sharding or a setting of JAX changes, or"
    " its caches are cleared: keep these as they are.",
    """\
# a number for each step
params, loss = step(params, batch, jnp.asarray(noise_level))""",
)
JIT_ONCE: Final = Fix(
    "Make the function once, before the loop, and pass it arguments. Each new one begins"
    " without a program.",
    """\
step = jax.jit(train_step)
for batch in batches:
    # not: jax.jit(lambda p: train_step(p, batch))(params)
    params, loss = step(params, batch)""",
)
# By the reason that the agent gives; of others the rule's own cure.
CURES: Final[dict[Framework, tuple[tuple[re.Pattern[str], Fix], ...]]] = {
    "jax": ((_AS_BEFORE, AS_ARRAY), (_MADE, JIT_ONCE)),
    "pytorch": ((_NO_SIZE, LOOK),),
    "tensorflow": ((_VALUE, AS_TENSOR), (_MADE, ONCE), (_OBJECT, SAME)),
}
# Who forgets all that was compiled.
_CLEARS: Final = re.compile(
    r"\b(clear_caches|clear_backends|clear_cache|clear_session|reset_default_graph"
    r"|(_dynamo|compiler)\.reset)\("
)
# As in "at x: now f32[99,4], before f32[20,4]".
_ARGUMENT: Final = re.compile(r"at \S+: now ")
KEEP: Final = Fix(
    "Do not clear the caches between steps. Everything is compiled again after that. If memory"
    " grows with compiled programs, shapes change: pad them."
)


def detect(window: Window) -> Verdict:
    """Judge the functions that were compiled again and again."""
    job, rate = window.job, window.job.mean(m.PROCESS_COMPILES)
    if not job.inside:
        return window.lacks(Need.INSIDE)
    # Loops of JAX's own that are compiled in each call miss a function around them: unjitted_step.
    again = [one for one in compiled_again(job) if one.function.function not in CONTROL]
    # What warms up ends by itself.
    goes_on = rate is None or round(rate.value * job.seconds) >= LEAST_NOW
    if not again or not goes_on or sum(one.share.value for one in again) < LEAST:
        return None
    worst, at = again[0].function, _place(again[0].function)
    framework, reason = PROBES[worst.framework], worst.reason or ""
    # Another cure than the rule's own, where the reason names another cause.
    cures = CURES.get(framework, ())
    cure = next((cure for like, cure in cures if like.search(reason)), None)
    title, clearing = f"'{worst.function}' is compiled again and again", _clearing(window, reason)
    if clearing:
        cure, title = KEEP, f"'{worst.function}' is compiled again: its cache is cleared"
    # Who pads to few lengths computes more; where no argument changed there is none to pad. Of a
    # function made anew hardly anything came back in one program of four: it stays wide.
    pads = framework == "jax" and cure not in {KEEP, AS_ARRAY}
    low, high = taken(window, again, grown=GROWN if pads else 1.0)
    # What else changes cannot always be kept as it is.
    gain = comes_back(window, low / 2 if cure is LOOK else low, high, Side.COMPILER)
    if _PIPELINE.fullmatch(worst.function):
        # To compile it is only a part of what the call does; the rest may be the model.
        mine = (x.share for x in window.rows if any(y[:2] == (at.file, at.line) for y in x.frames))
        gain = Gain(gain.low, max(gain.high, sum(mine)))
        names = called(at.file, at.line)
        by = next((name for name in names if _MAKES_PIPELINE.fullmatch(name)), None)
        cure = PIPELINE_ONCE
        if by is not None:
            cure = CALL_MODEL if by.endswith(".predict") else FOR_FEW
        title = "A data pipeline is made again and again"
        title = f"{by}() makes a data pipeline in each call" if by else title
    # Where an argument changes, the lines that give what its call is given.
    line = CodeLine(at.file, at.line, at.function)
    given = makers(line)[:2] if _ARGUMENT.match(reason) else ()
    others = (_place(one.function) for one in again[1:])
    places = (*clearing, at, *(Place(*each) for each in given), *others)
    return Found(
        gain=gain,
        fixes=None if cure is None else {framework: cure},
        evidence=_evidence(window, again),
        where=own(dict.fromkeys(place for place in places if place.file)),
        slice=Slice.IDLE_COMPILE,
        title=title,
        frameworks=tuple(dict.fromkeys(PROBES[one.function.framework] for one in again[:3])),
    )


def _clearing(window: Window, reason: str) -> tuple[Place, ...]:
    """Return the lines that clear what was compiled: in a loop, or where no argument changed."""
    is_same = _AS_BEFORE.match(reason)
    return tuple(
        place
        for place in asking(window.job, _CLEARS)
        if in_loop(place.file, place.line) or (is_same and place.function != MODULE)
    )


def _evidence(window: Window, again: list[Recompiled]) -> tuple[Evidence, ...]:
    job, worst = window.job, again[0].function
    programs = (window.fact("executables_by_name") or {}).get(f"jit_{worst.function}")
    alive = programs if isinstance(programs, int) and programs > 1 else None
    return (
        Evidence.of("time spent compiling", again[0].share),
        Evidence.of(f"compilations of '{worst.function}'", job.measure(worst.count, "count")),
        *((job.said("why", worst.reason),) if worst.reason else ()),
        *Evidence.known({ALIVE: job.measure(alive, "count") if alive else None}),
    )


def _place(function: Compiled) -> Place:
    # A name that does not stand in the file, as a library's own, would send people astray.
    file, line, name = function.file or "", function.line or 0, function.function
    is_theirs = line > 0 and readable(file) and not any(functions(file, name))
    return Place(file, line, function_at(file, line) if is_theirs else name)


rule = Rule(
    title="The same function is compiled again and again",
    documents=("D4 §1", "D4 summary"),
    fixes={
        "jax": Fix(
            "Pad batches to a few lengths, and mask the padding.",
            """\
def padded(array, bucket=128):
    return np.pad(array, ((0, -len(array) % bucket), (0, 0)))

real = np.arange(len(padded(x))) < len(x)
# within: (error * real[:, None]).sum() / real.sum()
loss = step(padded(x), real)""",
        ),
        "pytorch": Fix(
            "Mark the dimension that changes as dynamic. One program then fits all its sizes.",
            """\
torch._dynamo.mark_dynamic(batch, 0)
out = compiled(batch)""",
        ),
        "tensorflow": Fix(
            "Give tf.function a signature with None for what changes.",
            """\
@tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32)])
def step(x):
    return model(x)""",
        ),
    },
)

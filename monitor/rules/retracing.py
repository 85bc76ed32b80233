"""The same function is compiled again and again.

## What it sees
The agent hears of each compilation: the function, the line that called it, and what differed from
the times before. The fault is there when one function was compiled ten times or more within a
minute from the same line, and goes on to take time.

## Why it costs
A compiled program fits arguments of one shape and one type. A batch of another length, a Python
number where an array was, or a function that is made anew each time are traced, lowered and
compiled from the start: a second of waiting in place of a step of milliseconds.

## How to fix
Bring the arguments to a few shapes: pad to the next of some lengths, and mask what was added. Make
the last batch as large as the others, or drop it. Define the function once, outside of the loop;
name arguments that are settings as static only where they take few values. Keep types as they are:
a Python float beside an array of float32 counts as another type.

## When it is wrong
A job that warms up compiles many functions once, and that ends by itself. Where lengths repeat,
each is compiled once, and after some time no new one comes: then waiting is a fix, too. Padding
costs work; it is not worth it where one length stands for most batches. The code for TensorFlow
was not run.

## Documents
D4 §1 (jit with stable shapes) and its summary (pad and mask). There pmap is one of the seven
transformations; it compiles anew for each shape just as jit does.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.finding import Evidence, Fix, Found, Framework, Gain, Need, Place, Verdict
from whyidle.monitor.gathered import Compiled
from whyidle.monitor.rule import Rule
from whyidle.monitor.signals.again import Again, compiled_again
from whyidle.monitor.signals.window import Window
from whyidle.monitor.slices import Slice

# Below this it is not worth a person's time; "low" in the contract.
LEAST: Final = 0.01
# What is left of a step shrinks: of 12 shapes of one step on a CPU the first run took 1.5 times as
# long as the second (new pages, a program that is in no cache), and the search for a program and
# the way into it a tenth of what is left. And it grows by padding: by nothing where lengths lie
# close below the next one of the few, by at most all where powers of two are used.
AFTER_THE_FIRST: Final = 0.57
GROWN_BY_PADDING: Final = 2.0
_FRAMEWORKS: Final[dict[str, Framework]] = {"jax": "jax", "torch": "pytorch"}


def detect(window: Window) -> Verdict:
    """Judge the functions that were compiled again and again."""
    if not window.job.inside:
        return window.lacks(Need.INSIDE)
    again = compiled_again(window.job)
    if not again or (lost := again[0].share.value) < LEAST:
        return None
    worst = again[0].function
    return Found(
        gain=_gain(lost),
        evidence=tuple(_evidence(window, again)),
        where=tuple(_place(one.function) for one in again if one.function.file)[:3],
        slice=Slice.IDLE_COMPILE,
        title=f"'{worst.function}' is compiled again and again",
        frameworks=tuple(dict.fromkeys(_FRAMEWORKS[one.function.framework] for one in again[:3])),
    )


def _gain(lost: float) -> Gain:
    left = AFTER_THE_FIRST * (1 - lost)
    return Gain.between(1 - min(1.0, GROWN_BY_PADDING * left), 1 - left)


def _evidence(window: Window, again: list[Again]) -> list[Evidence]:
    worst = again[0]
    found = [
        Evidence.of("time spent compiling", worst.share),
        Evidence.of(
            f"compilations of '{worst.function.function}'",
            window.job.measure(worst.function.count, "count"),
        ),
    ]
    if worst.function.reason:
        age, seconds = window.job.age_s, window.job.seconds
        found.append(Evidence("why", worst.function.reason, "", "agent", age, seconds))
    programs = (window.fact("executables_by_name") or {}).get(f"jit_{worst.function.function}")
    if isinstance(programs, int) and programs > 1:
        told = window.job.measure(programs, "count")
        found.append(Evidence.of("compiled programs of this name alive", told))
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

"""TensorFlow runs the step eagerly, not as a graph.

## What it sees
The main thread in TensorFlow's Python outside any `tf.function`.

## Why it costs
Each operation takes some hundred microseconds of Python.

## How to fix
Return what you print from the function. Turn off `run_eagerly` and
`tf.config.run_functions_eagerly`.

## When it is wrong
Operations of milliseconds gain little. If a step is traced again each time, see `retracing`.

## Documents
D5 (its `tf.function` instead of eager execution).
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE
from whyidle.monitor.core.finding import MOST_LOST, Confidence, Evidence, Found, Gain
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.rules import Fix, Rule, Slice, Verdict, Window
from whyidle.monitor.signals.eager import eager_time
from whyidle.monitor.signals.gain import busy
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.user_lines import asking, own

_GRAPH: Final = "/tensorflow/python/eager/execute.py"
_SWITCHES: Final = re.compile(r"run_eagerly|run_functions_eagerly")
SWITCHED_OFF: Final = Fix(
    "Turn it off: while it is on, no tf.function is a graph.",
    "tf.config.run_functions_eagerly(False)",
)


def detect(window: Window) -> Verdict:
    """Judge the time in single operations."""
    host = window.sampled
    # Samples do not tell a graph that is built from operations that run.
    tracing = window.job.means.get(m.JOB_COMPILE, 0.0)
    tracing = max(0.0, tracing - host.share(HostClass.COMPILE))
    time = eager_time(host)
    # Where a graph runs beside them, on a line that calls both, that is none of them.
    samples = step_samples(window.job)
    graphs = samples.at_leaves(lambda leaf: leaf.file.endswith(_GRAPH))
    share = max(host.share(HostClass.EAGER), time.share - graphs) - tracing
    error = host.error(max(0.0, share))
    if not window.uses("tensorflow") or share - error < LITTLE:
        return None
    # Where an operation is launched it also runs on a CPU: the rest is Python, which a graph saves.
    launched = samples.at_leaves(lambda leaf: plays(Role.LAUNCH, leaf))
    whole = samples.at_leaves(lambda leaf: plays(Role.OF_TENSORFLOW, leaf))
    python = share * (1 - min(1.0, launched / whole)) if whole else 0.0
    # A graph leaves one call of that: little, beside ten operations.
    low = max(0.0, (python - error) * (1 - LITTLE))
    high = min(MOST_LOST, share + error)
    if window.gpu_trace is not None:
        idle = 1 - busy(window.gpu_trace)
        low, high = min(low, idle), min(high, idle)
    is_off = window.fact("run_functions_eagerly") is True
    return Found(
        gain=Gain.between(min(low, high), high),
        evidence=(
            Evidence.of("main thread in single operations", window.job.sampled(share)),
            Evidence.of("of it in Python around them", window.job.sampled(python)),
        ),
        where=(asking(window.job, _SWITCHES) if is_off else ()) or own(time.where),
        slice=Slice.IDLE_DISPATCH,
        confidence=Confidence.INFERRED,
        title="run_functions_eagerly is on: no tf.function is a graph" if is_off else None,
        fixes={"tensorflow": SWITCHED_OFF} if is_off else None,
    )


rule = Rule(
    title="TensorFlow runs the step eagerly, not as a graph",
    documents=("D5",),
    fixes={
        "tensorflow": Fix(
            "Put the whole step into one tf.function: forward, gradient and update.",
            """\
@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    weights = model.trainable_variables
    slopes = tape.gradient(loss, weights)
    optimizer.apply_gradients(zip(slopes, weights))
    return loss""",
        )
    },
    only=("tensorflow",),
)

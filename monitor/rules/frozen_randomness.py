"""Random numbers are drawn on the host once, while a function is compiled, and never again.

## What it sees
A function that JAX compiles, or one that it calls in the same file, draws from `random` or
`numpy.random`.

## Why it costs
The draw becomes a constant: the same noise in each step, and no error.

## How to fix
Pass a new key for each step as an argument.

## When it is wrong
If a constant is intended, draw it outside and pass it in. Lambdas are not searched.

## Documents
D4 summary (PRNG keys split outside the step).
"""

from __future__ import annotations

from whyidle.monitor.code.frozen_random import frozen, lambdas
from whyidle.monitor.code.source import functions, line_of, readable
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.signals.recompiled import alive
from whyidle.monitor.signals.user_lines import own


def detect(window: Window) -> Verdict:
    """Judge the source of what was compiled."""
    if not window.job.inside:
        return window.lacks(Need.INSIDE)
    # A job that somebody attaches to has long compiled what it runs.
    seen = window.job.compiled
    compiled = seen or tuple(alive(window))
    if not any(readable(one.file) for one in compiled):
        return window.lacks(Need.SOURCE if compiled else Need.COMPILING)
    found = ((one, place) for one in compiled for place in frozen([one]))
    places = list(dict.fromkeys(at for one, at in found if not _runs(window, one, at)))
    if not places:
        why = "a lambda was compiled, which cannot be found there"
        return window.lacks(Need.SOURCE, why) if lambdas(compiled) else None
    job = window.job
    return Found(
        gain=None,
        evidence=(
            Evidence.of("lines that draw while JAX traces", job.measure(len(places), "count")),
            *(
                job.said(f"in '{place.function}'", line_of(place.file, place.line) or "", "source")
                for place in places[:3]
            ),
        ),
        where=own(places),
        severity=Severity.MEDIUM,
        confidence=Confidence.MEASURED if seen else Confidence.INFERRED,
        frameworks=("jax",),
    )


def _runs(window: Window, one: Compiled, place: Place) -> bool:
    """Tell whether another function of that name is compiled: this one runs line by line."""
    if one.file is None or len(list(functions(one.file, one.function))) < 2:
        return False
    here = (place.file, place.function)
    return any(
        row.doing is not HostClass.COMPILE and here in {(x.file, x.function) for x in row.frames}
        for row in window.rows
    )


rule = Rule(
    title="Random numbers are drawn once, while compiling, then reused",
    documents=("D4 summary",),
    fixes={
        "jax": Fix(
            "Draw with jax.random, from a key that is split outside the step.",
            """\
@jax.jit
def step(params, x, key):
    noise = jax.random.normal(key, x.shape)
    return update(params, x + 0.1 * noise)

for x in batches:
    key, fresh = jax.random.split(key)
    params = step(params, x, fresh)""",
        )
    },
    only=("jax",),
    kind=Kind.ERROR,
)

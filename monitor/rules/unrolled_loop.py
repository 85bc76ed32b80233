"""A Python loop within a compiled function is unrolled, pass by pass.

## What it sees
A program of thousands of operations that takes seconds to compile, and a Python loop in its source
with passes that build on one another.

## Why it costs
Compile time grows to many minutes, for each change, start and new shape. On a CPU it runs no
faster.

## How to fix
`jax.lax.scan` takes inputs stacked along the first axis, and stacks the results. Layers of one
shape can be scanned too, with stacked parameters.

## When it is wrong
Passes of different shapes cannot be scanned; a few are better unrolled (`unroll=`). In a job of
days compiling does not matter.

## Documents
D4 §3 (scan instead of a loop).
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.code.loops import loops_in
from whyidle.monitor.code.source import readable
from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.rules._programs import Program, largest, name_of, products_of
from whyidle.monitor.signals.user_lines import own

# A step of some layers has a few hundred operations, one pass of a cell with its gradient tens.
LEAST_OPERATIONS: Final = 600
# Of matrices: one and its two gradients for each pass of at least eight.
LEAST_PRODUCTS: Final = 24
# Shorter waits are not felt.
LEAST_SECONDS: Final = 1.0
# Seconds of waiting at each start and each change.
LEAST_WAIT: Final = {Severity.HIGH: 120.0, Severity.MEDIUM: 10.0}


def detect(window: Window) -> Verdict:
    """Judge the largest programs."""
    job, large = window.job, list(filter(_is_large, largest(window)))
    if not large:
        return None
    worst = max(large, key=lambda program: int(program["operations"]))
    name = name_of(worst)
    rows = [one for one in job.compiled if one.function == name and one.file]
    if not any(readable(one.file) for one in rows):
        return window.lacks(Need.SOURCE if rows else Need.COMPILING)
    where = tuple(dict.fromkeys(p for one in rows for p in loops_in(one.file or "", name)))
    took, whole = sum(one.ns for one in rows) / 1e9, job.warm_s + job.seconds
    if not where or took < LEAST_SECONDS:
        return None
    share = Measure(min(1.0, took / whole), "ratio", "agent", job.age_s, whole)
    # How much a wait for the compiler matters.
    felt = (severity for severity, least in LEAST_WAIT.items() if took >= least)
    return Found(
        gain=None,
        evidence=(
            Evidence.of("operations of the program", job.measure(worst["operations"], "count")),
            Evidence.of("products of matrices in it", job.measure(products_of(worst), "count")),
            Evidence.of("compiling it took", job.measure(took, "s")),
            Evidence.of("of all the time watched", share),
        ),
        where=own(where),
        slice=Slice.IDLE_COMPILE,
        severity=next(felt, Severity.LOW),
        frameworks=("jax",),
    )


def _is_large(program: Program) -> bool:
    return (
        int(program.get("operations") or 0) >= LEAST_OPERATIONS
        and not program.get("loops")
        and products_of(program) >= LEAST_PRODUCTS
    )


rule = Rule(
    title="A Python loop is unrolled into a large compiled program",
    documents=("D4 §3",),
    fixes={
        "jax": Fix(
            "Write the loop as jax.lax.scan.",
            """\
def pass_(hidden, x):
    hidden = cell(params, hidden, x)
    return hidden, hidden  # what goes on, and what is kept

hidden, kept = jax.lax.scan(pass_, hidden, xs)""",
        )
    },
    only=("jax",),
)

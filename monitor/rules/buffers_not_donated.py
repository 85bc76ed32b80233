"""The state of the training is there twice: a step keeps the old one while it makes the new one.

## What it sees
A compiled program whose results are about as large as its arguments and that takes over none of
their memory, and, in the source of the line that calls it, that the result takes the place of an
argument: `state = step(state, batch)`. That is no fault of `q = f(p)`, where both are wanted. A
program that does less arithmetic than its results have numbers copies most of them, as one that
writes a token to a cache; on a CPU the kernel counts the pages that this takes anew.

## Why it costs
Parameters and the moments of the optimizer are needed once. Without donation the program must leave
its arguments as they are, and needs as much memory again for the results. Where memory is what
limits the batch, that is room for a larger one. What has to be allocated each time costs a little
time, too, and all of the time where a large array is copied to change a part of it.

## How to fix
Tell `jax.jit` which arguments may be overwritten, with `donate_argnums`, and use them no more after
the call: the old name must not be read again.

## When it is wrong
A state that is read after the call cannot be donated: for a comparison, for an average of the
parameters, for going back when a loss is not finite. Where memory is plentiful it changes little.

## Documents
D4 §1 (jit with donate_argnums).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from whyidle.monitor.code.replaced import calls_of, is_replaced
from whyidle.monitor.code.source import readable
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import (
    Confidence,
    Evidence,
    Fix,
    Found,
    Gain,
    Need,
    Place,
    Severity,
    Verdict,
)
from whyidle.monitor.rules import Kind, Rule
from whyidle.monitor.signals.memory import FAULT_S
from whyidle.monitor.signals.window import Window

# Smaller states are not worth a line, on any device.
LEAST_BYTES: Final = 16 << 20
# The arguments hold the batch besides, the results what the step reports.
LEAST_SHARE: Final = 0.5
# So much of what could be taken over is, where it was donated.
TAKEN_OVER: Final = 0.25
# Of the memory that there is; from here on it limits what a job can do.
NEAR_THE_LIMIT: Final = 0.8
MUCH: Final = 0.1
# Bytes of a number: float64 and complex64 have eight, most have fewer, and there are more of them.
LARGEST_NUMBER: Final = 8
COMPUTED: Final = 0.5
# A second: less costs a hundredth of it.
LEAST_PAGES: Final = 10_000
# Beside the largest program others make new arrays, too.
OF_COPIES: Final = 0.5
MOST: Final = 0.99
Program = Mapping[str, Any]


def detect(window: Window) -> Verdict:
    """Judge the programs that the agent has looked at."""
    programs = window.fact("largest_executables")
    if not programs:
        return window.lacks(Need.INSIDE)
    worst = max((p for p in programs if _is_kept_twice(p)), key=_twice, default=None)
    if worst is None:
        return None
    name = str(worst["name"]).removeprefix("jit_")
    # A job that somebody attaches to has long compiled what it runs.
    places = window.where_compiled(name) or tuple(calls_of(name, window.job.lines))
    if not any(readable(place.file) for place in places):
        return window.lacks(Need.SOURCE if places else Need.COMPILING)
    where = tuple(place for place in places if is_replaced(place))
    return _found(window, worst, where) if where else None


def _found(window: Window, program: Program, where: tuple[Place, ...]) -> Found:
    measure = window.job.measure
    copies = _copies(program)
    pages = window.job.mean(m.JOB_MINOR_FAULTS) if copies else None
    gain = None if pages is None else _gain(window, pages.value)
    return Found(
        gain=gain,
        evidence=(
            Evidence.of("results in memory of their own", measure(_twice(program), "bytes")),
            Evidence.of("arguments", measure(program["argument_bytes"], "bytes")),
            Evidence.of("of these overwritten", measure(program["aliased_bytes"], "bytes")),
            *(() if gain is None or pages is None else (Evidence.of("pages made anew", pages),)),
        ),
        where=where,
        severity=_severity(window, _twice(program)) if gain is None else None,
        confidence=Confidence.MEASURED if gain is None else Confidence.INFERRED,
        title="A whole array is copied in each step, to change a part of it" if copies else None,
        frameworks=("jax",),
    )


def _copies(program: Program) -> bool:
    """Tell whether most of its results are as they were: to compute a number takes an operation."""
    flops = program.get("flops")
    numbers = _twice(program) / LARGEST_NUMBER
    return isinstance(flops, int | float) and flops < COMPUTED * numbers


def _gain(window: Window, pages: float) -> Gain | None:
    """Return what the pages cost on a CPU, of which others may make some; ``None``: little."""
    cores = window.job.mean(m.JOB_CPU)
    if window.device != "cpu" or cores is None or pages < LEAST_PAGES:
        return None
    low, high = (min(MOST, pages * each / max(1.0, cores.value)) for each in FAULT_S)
    # What is copied is read and written besides.
    return Gain.between(OF_COPIES * low, min(MOST, 2 * high))


def _severity(window: Window, twice: float) -> Severity:
    limit, peak = (window.job.mean(x) for x in (m.PROCESS_POOL_LIMIT, m.PROCESS_POOL_PEAK))
    if limit is None or peak is None:
        return Severity.LOW
    near = peak.value >= NEAR_THE_LIMIT * limit.value
    return Severity.MEDIUM if near or twice >= MUCH * limit.value else Severity.LOW


def _is_kept_twice(program: Program) -> bool:
    sizes = [program.get(f"{name}_bytes") for name in ("argument", "output", "aliased")]
    if any(size is None for size in sizes):
        return False
    arguments, results, taken = (float(size) for size in sizes if size is not None)
    could = min(arguments, results)
    return (
        could >= LEAST_BYTES
        and could >= LEAST_SHARE * max(arguments, results)
        and taken < TAKEN_OVER * could
    )


def _twice(program: Program) -> float:
    could = min(float(program["argument_bytes"]), float(program["output_bytes"]))
    return could - float(program["aliased_bytes"])


rule = Rule(
    title="The state of the training is in memory twice during a step",
    documents=("D4 §1",),
    fixes={
        "jax": Fix(
            "Let the step overwrite what it replaces, and name every such argument: (0, 1) where "
            "parameters and state of the optimizer come as two.",
            """\
step = jax.jit(train_step, donate_argnums=(0,))
state, loss = step(state, batch)  # the old state is gone""",
        ),
    },
    only=("jax",),
    detect=detect,
    kind=Kind.MEMORY,
)

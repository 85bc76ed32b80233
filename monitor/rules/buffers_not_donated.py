"""The training state is in memory twice: a step keeps the old one while it makes the new one.

## What it sees
A compiled program with results as large as its arguments that reuses none of their memory, and a
line like `state = step(state, batch)`.

## Why it costs
The results need as much memory again.

## How to fix
Do not read the old name after the call.

## When it is wrong
A state that is read later cannot be donated, as for averages or a way back from a NaN loss.

## Documents
D4 §1 (jit with donate_argnums).
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.code.replaced import is_replaced
from whyidle.monitor.code.source import readable
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE, MOSTLY, NEARLY_ALL, SURELY
from whyidle.monitor.core.finding import MOST_LOST, Confidence, Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window
from whyidle.monitor.rules._programs import Program, compiled_at, largest, name_of
from whyidle.monitor.signals.memory import clearing

# Smaller states are not worth a line, on any device: of 1 MB every small network has one
# (``make golden``: thirty programs, most of them healthy).
LEAST_STATE: Final = 16 << 20
# Bytes of a number: float64 and complex64 have eight, most have fewer, and there are more of them.
LARGEST_NUMBER: Final = 8


def detect(window: Window) -> Verdict:
    """Judge the programs that the agent has looked at."""
    worst = max(filter(_is_kept_twice, largest(window)), key=_twice, default=None)
    if worst is None:
        return None
    places = compiled_at(window, name_of(worst))
    if not any(readable(place.file) for place in places):
        return window.lacks(Need.SOURCE if places else Need.COMPILING)
    where = tuple(filter(is_replaced, places))
    if not where:
        return None
    measure, twice, flops = window.job.measure, _twice(worst), worst.get("flops")
    # Most of its results are as they were: to compute a number takes an operation.
    copies = isinstance(flops, int | float) and flops < MOSTLY * twice / LARGEST_NUMBER
    pages = window.job.mean(m.JOB_MINOR_FAULTS) if copies else None
    gain = None if pages is None else _gain(window, pages.value)
    limit, peak = (window.job.mean(x) for x in (m.PROCESS_POOL_LIMIT, m.PROCESS_POOL_PEAK))
    is_much = (
        limit is not None
        and peak is not None
        and (peak.value >= NEARLY_ALL * limit.value or twice >= LITTLE * limit.value)
    )
    return Found(
        gain=gain,
        evidence=(
            Evidence.of("results in memory of their own", measure(twice, "bytes")),
            Evidence.of("arguments", measure(worst["argument_bytes"], "bytes")),
            Evidence.of("of these overwritten", measure(worst["aliased_bytes"], "bytes")),
            *(() if gain is None or pages is None else (Evidence.of("new pages", pages),)),
        ),
        where=where,
        severity=None if gain else Severity.MEDIUM if is_much else Severity.LOW,
        confidence=Confidence.MEASURED if gain is None else Confidence.INFERRED,
        title="A whole array is copied in each step to change a part of it" if copies else None,
        frameworks=("jax",),
    )


def _gain(window: Window, pages: float) -> Gain | None:
    """Return what the pages cost on a CPU, of which others may make some; ``None``: little."""
    cores = window.job.mean(m.JOB_CPU)
    if window.device != "cpu" or cores is None:
        return None
    low, high = (each / max(1.0, cores.value) for each in clearing(window.job, pages))
    if low < Severity.LOW.least:
        return None
    # What is copied is read and written besides.
    return Gain.between(SURELY * min(MOST_LOST, low), 2 * high)


def _is_kept_twice(program: Program) -> bool:
    sizes = [program.get(f"{name}_bytes") for name in ("argument", "output", "aliased")]
    if any(size is None for size in sizes):
        return False
    arguments, results, taken = (float(size) for size in sizes if size is not None)
    could = min(arguments, results)
    return (
        could >= LEAST_STATE
        and could >= MOSTLY * max(arguments, results)
        and taken < MOSTLY * could
    )


def _twice(program: Program) -> float:
    could = min(float(program["argument_bytes"]), float(program["output_bytes"]))
    return could - float(program["aliased_bytes"])


rule = Rule(
    title="The training state is in memory twice during a step",
    documents=("D4 §1",),
    fixes={
        "jax": Fix(
            "Donate the arguments that the step replaces. Name each of them: (0, 1) where"
            " parameters and optimizer state are two arguments.",
            """\
step = jax.jit(train_step, donate_argnums=(0,))
state, loss = step(state, batch)  # the old state is gone""",
        )
    },
    only=("jax",),
    kind=Kind.MEMORY,
)

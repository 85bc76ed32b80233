"""Python's garbage collector pauses the job.

## What it sees
The time in Python's cyclic garbage collector, or in Julia's.

## Why it costs
A full collection visits every object: 100,000 after the imports, millions with lists of samples.

## How to fix
Tensors and arrays are freed without `gc.collect()`. With several ranks, call `gc.disable()`, and
`gc.collect()` at the same step on all of them. In Julia `GC.gc(false)` visits only young objects.

## When it is wrong
Reference cycles have to be collected. `gc.freeze()` keeps live objects forever: collect first.

## Documents
D2 §1 (GC cadence: 67% -> 3% of the time in Julia's collector). The pair of Julia programs shows it
on a CPU; it was not run with Flux.jl and CUDA.jl.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from whyidle.monitor.code import source
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE, MOSTLY
from whyidle.monitor.core.finding import Evidence, Found, Gain, Place
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.user_lines import in_script, is_julia, of_slice, seen

# Objects in circles must be collected by somebody: of jobs that make them half came back. All of it
# does where none are made any more.
BACK_LEAST: Final = 0.5
# Where the user asks for the collections they can be left out, nearly all of them.
ASKED_BACK_LEAST: Final = 0.95
# A full collection reads every object there is, and with that throws out of the caches what the
# step works on: steps after one took 1.1 to 1.4 times as long, in three sizes of a network
# (``benchmarks/unit_costs.py``). Without it about so much of the rest comes back too;
COLD_CACHES: Final = 0.25
# JAX's threads on a CPU have slept meanwhile, and come late: steps took 1.2 to 1.6 times as long.
LATE_THREADS: Final = 0.35
# Shorter collections are of young objects, few enough to leave the caches as they are.
FULL_S: Final = 0.001
_ASKS: Final = re.compile(r"\bGC\.gc\((?!\s*false\b)")


def detect(window: Window) -> Verdict:
    """Judge the time in Python's collector."""
    pauses = window.needed(
        window.share(Slice.IDLE_GC) if m.JOB_GC_PAUSE in window.job.means else None, Need.INSIDE
    )
    takes, rate = pauses.value, window.job.mean(m.PROCESS_GC_COLLECTIONS)
    # Ranks collect when they like, and all wait for each of them, one after the other at most.
    ranks = [each.means.get(m.PROCESS_GC_PAUSE, 0.0) for each in window.job.ranks_seen]
    together = sum(ranks) if len(ranks) > 1 else 0.0
    if max(takes, together) < Severity.LOW.least:
        return None
    asked, whose = _asked(window), "Julia" if is_julia(window) else "Python"
    least, most = takes * (ASKED_BACK_LEAST if asked else BACK_LEAST), takes
    if rate is None or takes >= rate.value * FULL_S:
        # The rest takes longer for collections in between. What comes late slept no longer than
        # the collection.
        is_late = window.device == "cpu" and window.uses("jax")
        late = LATE_THREADS if is_late else COLD_CACHES
        most += min(takes if is_late else LITTLE * takes, late * (1 - takes))
    if window.host is None or together > most:
        gain = Gain.between(least, max(most, together))
    else:
        gain = comes_back(window, least, most, Side.HOST)
    each = replace(pauses, value=takes / rate.value, unit="s") if rate and rate.value else None
    several = f"in the collectors of {len(ranks)} ranks, which come in turns"
    title = f"{whose}'s garbage collector stops the job" if whose == "Julia" else None
    measures = {
        "time in the collector": pauses,
        several: replace(pauses, value=together) if together > takes else None,
        "collections": rate if each else None,
        "one collection on average": each,
        "collections of all objects": window.job.mean(m.PROCESS_GC_FULL),
    }
    return Found(
        gain=gain,
        evidence=Evidence.known(measures),
        where=asked or of_slice(window, Slice.IDLE_GC),
        slice=Slice.IDLE_GC,
        title=f"The job has {whose} collect garbage in its loop" if asked else title,
    )


def _asked(window: Window) -> tuple[Place, ...]:
    """Return the user's lines that call the collector and were seen doing it.

    Of Julia those in the text, where nearly all collections are of the kind that they ask for.
    """
    if is_julia(window):
        full, rate = (window.job.mean(x) for x in (m.PROCESS_GC_FULL, m.PROCESS_GC_COLLECTIONS))
        # Left alone they were of all objects in 2 cases of 72 (the pair's program after the fix).
        mostly = full is not None and rate is not None and full.value > MOSTLY * rate.value
        return in_script(window, _ASKS) if mostly else ()
    return seen(
        window.job, lambda line: "gc.collect(" in (source.line_of(line.file, line.line) or "")
    )


rule = Rule(
    title="Python's garbage collector pauses the job",
    documents=("D2 §1",),
    fixes={
        **both(
            "Call gc.freeze() after set-up, and collect rarely.",
            """\
gc.collect()
gc.freeze()  # once, when data and model are there: not looked at again
gc.set_threshold(50_000, 10, 10)
for step, batch in enumerate(batches):
    train(batch)
    if step % 1000 == 999:
        gc.collect()""",
        ),
        "flux": Fix(
            "Collect young objects every few steps, and all objects rarely.",
            """\
for (step, batch) in enumerate(batches)
    train(batch)
    # then CUDA.reclaim(), where memory is short
    step % 50 == 0 && GC.gc(false)
end""",
        ),
    },
)

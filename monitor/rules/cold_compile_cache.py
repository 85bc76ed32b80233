"""Every start compiles again what the last one compiled.

## What it sees
JAX compiled programs that no cache had. Record from the start (`monitor run`).

## Why it costs
The next start waits as long again.

## How to fix
The variable JAX_COMPILATION_CACHE_DIR does the same. JAX keeps programs that compile for longer
than a second.

## When it is wrong
A job that changes shapes or code at each start gains little, one that runs for weeks nothing.

## Documents
Beyond the five documents. D4's summary measures after the warm-up: this is the time before it.
"""

from __future__ import annotations

from whyidle.monitor.core.amounts import A_WHILE_S
from whyidle.monitor.core.finding import Confidence, Evidence, Found
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window


def detect(window: Window) -> Verdict:
    """Judge the time spent compiling what no cache had."""
    caches = window.needed(window.fact("compilation_cache"), Need.INSIDE)
    found = [each for each in window.job.compiled if each.framework == "jax"]
    # A function that a cache had in part took its time for the others.
    seconds = (
        sum(each.ns * (1 - min(1.0, each.cached / max(1, each.count))) for each in found) / 1e9
    )
    if caches is True or seconds < A_WHILE_S:
        return None
    programs = sum(max(0, each.count - each.cached) for each in found)
    return Found(
        gain=None,
        evidence=(
            Evidence.of("compiled without a cache", window.job.measure(seconds, "s")),
            Evidence.of("programs", window.job.measure(programs, "count")),
        ),
        where=window.where_compiled(),
        # From a minute on it is worth a line above the last ones.
        severity=Severity.LOW if seconds >= 60 else Severity.INFO,
        confidence=Confidence.MEASURED,
    )


rule = Rule(
    title="Every start compiles again what the last one compiled",
    # The steps take no time of it: only a next start does.
    kind=Kind.INFORMATION,
    fixes={
        "jax": Fix(
            "Set a folder for compiled programs before anything is compiled.",
            'jax.config.update("jax_compilation_cache_dir", "/var/tmp/jax_cache")',
        )
    },
    only=("jax",),
)

"""Faults of the catalogue that no rule detects yet: listed with their fix, and never found.

A fault leaves this table when its file comes. The code for Flux.jl was not run.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import Fix
from whyidle.monitor.rules._rule import Rule

PLANNED: Final[dict[str, Rule]] = {
    "straggler_rank": Rule(
        "One rank comes last to every collective, and all others wait for it",
        ("beyond the documents",),
        {
            "pytorch": Fix("Look at that rank's host: its clocks, its loader, its neighbours."),
            "jax": Fix("Look at that process's host: its clocks, its input, its neighbours."),
        },
    ),
}

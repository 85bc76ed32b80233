"""Faults of the catalogue that no rule detects yet: listed with their fix, and never found.

A fault leaves this table when its file comes. The code for Flux.jl was not run.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.rules._rule import Rule

PLANNED: Final[dict[str, Rule]] = {}

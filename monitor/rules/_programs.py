"""What JAX's compiled programs say of themselves: the largest that the agent has looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whyidle.monitor.code.replaced import calls_of
from whyidle.monitor.core.finding import Need, Place
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window

Program = Mapping[str, Any]


def largest(window: Window) -> list[Program]:
    """Return them; raises ``Lacking``."""
    found: list[Program] = window.needed(window.fact("largest_executables") or None, Need.INSIDE)
    return found


def name_of(program: Program) -> str:
    """Return the name of the function that it was made of."""
    return str(program.get("name", "")).removeprefix("jit_")


def bytes_of(program: Program, kind: str = "argument") -> float:
    """Return the size of its arguments, results or temporaries; 0: not known."""
    return float(program.get(f"{kind}_bytes") or 0)


def products_of(program: Program) -> int:
    """Return how many products of matrices are in it."""
    return sum((program.get("products") or {}).values())


def calls_in(trace: Traced, name: str) -> int:
    """Return how often a trace has the call of such a function."""
    return trace.count(re.escape(f"PjitFunction({name})"))


def compiled_at(window: Window, name: str) -> tuple[Place, ...]:
    """Return the lines that had a function compiled."""
    # A job that somebody attaches to has long compiled what it runs.
    return window.where_compiled(name) or tuple(calls_of(name, window.job.lines))

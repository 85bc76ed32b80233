"""The account of a job in a few words, for a line that is already crowded."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.contracts.trace import AccountJson
from whyidle.monitor.render import numbers
from whyidle.monitor.render.budget import VISIBLE, in_order, share, words
from whyidle.monitor.runs.estimate import Running

# How many parts can be read at a glance.
PARTS: Final = 3


def briefly(running: Running) -> str | None:
    """Return the account for a line that is already crowded."""
    if not running.slices:
        return None
    on = "estimate" if running.source == "estimate" else "trace"
    if running.source == "trace" and running.age is not None:
        on = f"trace {numbers.duration(running.age)} ago"
    return f"time ({on}): {parts(running.budget)}"


def parts(budget: AccountJson, most: int = PARTS) -> str:
    """Return the largest parts of an account."""
    total = sum(budget["slices"].values())
    shown = [(s, ns) for s, ns in in_order(budget) if ns >= VISIBLE * total]
    return ", ".join(f"{words(s)} {share(ns, total)}" for s, ns in shown[:most])

"""The first sentence of ``monitor compare``: which is faster, by how much, and how certain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from whyidle.monitor.compare import Comparison, Verdict
from whyidle.monitor.compare.bootstrap import Interval
from whyidle.monitor.compare.pace import BETWEEN_RUNS, is_below_floor
from whyidle.monitor.render.budget import clock

SAME: Final = "No difference beyond noise"


def verdict(found: Comparison) -> str:
    """Return the one sentence that a person in a hurry reads."""
    steps = found.steps
    if steps is None:
        return "Which of them is faster is not known; the figures below are per second."
    speedup = steps.speedup
    on_average = " on average" if steps.by == "mean" else ""
    took = f"{found.per} {change(steps.a.middle, steps.b.middle, clock)}{on_average}"
    much, bounds = _factor(speedup)
    match found.verdict:
        case Verdict.SAME:
            same = f"No difference of {BETWEEN_RUNS:.0%} or more" if speedup.excludes(1.0) else SAME
            return f"{same}: {took}, {much} {bounds}"
        case Verdict.FASTER | Verdict.SLOWER:
            return f"B is {much} {bounds}: {took}"
        case _ if not bounds:
            return f"B looks {much}, not certain: {took}"
        case _ if is_below_floor(speedup):
            return f"Whether there is a difference is not certain: {took}, {much} {bounds}"
        case _:
            return f"Perhaps {much} {bounds}, not certain: {took}"


def floor(found: Comparison) -> str | None:
    """Say so if a difference exceeds noise but not what one program varies from run to run."""
    speedup = found.speedup
    if speedup is None or not speedup.excludes(1.0) or not is_below_floor(speedup):
        return None
    return (
        f"Less than {BETWEEN_RUNS:.0%} is never called a difference: one program varies by as much"
        " from run to run."
    )


def _factor(speedup: Interval) -> tuple[str, str]:
    """Return by how much B is faster or slower, always as a factor above one."""
    faster = speedup.middle >= 1
    much = speedup.middle if faster else 1 / speedup.middle
    word = "faster" if faster else "slower"
    if speedup.low is None or speedup.high is None:
        return f"{much:.2f}x {word}", ""
    low, high = speedup.low, speedup.high
    low, high = (low, high) if faster else (1 / high, 1 / low)
    return f"{much:.2f}x {word}", f"[{low:.2f}, {high:.2f}]"


def change(a: float, b: float, written: Callable[[float], str]) -> str:
    """Return both values, with one unit if they share it."""
    one, two = written(a), written(b)
    if " " in one and one.split()[-1] == two.split()[-1]:
        one = one.rsplit(" ", 1)[0]
    return f"{one} -> {two}"

"""What the job itself counts as a step wins over what merely repeats in its trace."""

from __future__ import annotations

from typing import Final

import numpy as np

from whyidle.monitor.traces.steps.finding import Steps

# A profiler slows a step down, and no two steps are alike.
AGREES: Final = 0.25
NO_STEP: Final = "what repeats takes {took:.3g} ms, and that is no step of the job"


def agreeing(found: Steps, step_ns: int | None, ticks_per_ns: int) -> Steps:
    """Return the steps of a trace where a marker or the job's own count speaks for them."""
    took = found.median
    if step_ns is None or took is None or found.source != "repetition":
        return found
    took_ns = took / ticks_per_ns
    if abs(took_ns - step_ns) <= AGREES * step_ns:
        return found
    none = np.zeros(0, np.int64)
    return Steps("none", none, none, NO_STEP.format(took=took_ns / 1e6))

"""Which share of the time the device computes, where somebody knows that."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.contracts.trace import AccountJson
from whyidle.monitor.core.slices import Slice

ESTIMATE: Final = "estimate"
ONLY_A_TRACE: Final = "only a trace tells: no counter says how busy the device is"
NOTHING: Final = "nothing measured says so"


def known_compute(
    budget: AccountJson | None, source: str | None, *, counted: bool
) -> tuple[float | None, str]:
    """Return the share of compute and who says so; where nobody does, ``None`` and why.

    ``counted``: a counter of the job's GPUs says how busy they are. Without one an estimate has no
    compute at all, and that is no measured zero.
    """
    slices = budget["slices"] if budget else {}
    total = sum(slices.values())
    if not total:
        return None, NOTHING
    compute = slices.get(Slice.COMPUTE, 0)
    if source == ESTIMATE and not compute and not counted:
        return None, ONLY_A_TRACE
    return compute / total, f"by the {source}" if source else ""

"""What a demo says of its pace in its last line: "120 steps, 12.3 ms a step, 4567 samples/s"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

STEP: Final = re.compile(r"([\d.,]+) ms a step")
PACE: Final = re.compile(r"([\d.,]+) samples/s")
# The step of a small job on a shared machine is known to a few percent.
CLOSE: Final = 0.03


def printed(text: str) -> dict[str, float | None]:
    """Return the last of each number that a program printed."""
    return {"step_ms": _last(STEP, text), "samples_per_s": _last(PACE, text)}


def _last(like: re.Pattern[str], text: str) -> float | None:
    found = like.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def faster(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> float | None:
    """Return the speed-up: by samples, where both have them, because a fix may change the batch."""
    was, now = before.get("samples_per_s"), after.get("samples_per_s")
    if was and now:
        return now / was
    was, now = before.get("step_ms"), after.get("step_ms")
    return was / now if was and now else None


def is_inside(speedup: Sequence[float], measured: float) -> bool:
    """Tell whether what came back was predicted."""
    low, high = speedup
    return bool((1 - CLOSE) * low <= measured <= (1 + CLOSE) * high)

"""A number that carries its source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

# Where threads were found: read from outside, or by the agent where that is not possible.
SAMPLES: Final = "stack samples"


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured value; use ``None`` where nothing was measured."""

    value: float
    unit: str
    # "agent", "nvml", .., SAMPLES, or "trace 3".
    source: str
    # Seconds since its window ended; ``None``: from a file, whose age does not matter.
    age_s: float | None = None
    # The length of its window.
    window_s: float | None = None

    def times(self, factor: float, unit: str | None = None) -> Measure:
        """Return this measure, scaled."""
        return replace(self, value=self.value * factor, unit=unit or self.unit)

    def per(self, other: Measure | None, unit: str) -> Measure | None:
        """Return the ratio to another measure; ``None`` where that is unknown or zero."""
        if other is None or not other.value:
            return None
        return replace(self, value=self.value / other.value, unit=unit)

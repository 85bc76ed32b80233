"""A number that says where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured value; what is not measured is ``None`` instead."""

    value: float
    unit: str
    # "agent", "nvml", .., or "trace 3".
    source: str
    # Seconds since its window ended; ``None``: of a file, whose time does not matter.
    age_s: float | None = None
    # Seconds that it is about.
    window_s: float | None = None

    def times(self, factor: float, unit: str | None = None) -> Measure:
        """Return it scaled."""
        return replace(self, value=self.value * factor, unit=unit or self.unit)

    def per(self, other: Measure | None, unit: str) -> Measure | None:
        """Return the ratio to another; ``None`` where that is unknown or nothing."""
        if other is None or not other.value:
            return None
        return replace(self, value=self.value / other.value, unit=unit)

"""What energy and a GPU cost here, as the environment says; nothing is assumed.

``WHYIDLE_KWH_PRICE`` is paid for a kilowatt-hour, ``WHYIDLE_GPU_HOUR_PRICE`` for an hour of one
GPU, both in ``WHYIDLE_CURRENCY``. Where both are set they add up: who rents a GPU sets no price of
energy.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Final

KWH: Final = "WHYIDLE_KWH_PRICE"
GPU_HOUR: Final = "WHYIDLE_GPU_HOUR_PRICE"
CURRENCY: Final = "WHYIDLE_CURRENCY"
NO_PRICE: Final = f"no price is set: export {KWH}=0.30, or {GPU_HOUR}=2.50"
JOULES_PER_KWH: Final = 3.6e6
LONGEST: Final = 12


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices that are set, and why there are none."""

    kwh: float | None = None
    gpu_hour: float | None = None
    currency: str = ""
    unknown: str | None = NO_PRICE

    @classmethod
    def here(cls) -> Prices:
        """Return those of this process's environment."""
        found: dict[str, float] = {}
        for name in (KWH, GPU_HOUR):
            text = os.environ.get(name, "").strip()
            price = _number(text)
            if price is not None:
                found[name] = price
            elif text:
                return cls(unknown=f"{name} is no price: export {name}=0.30")
        currency = os.environ.get(CURRENCY, "").strip()[:LONGEST]
        unknown = None if found else NO_PRICE
        return cls(found.get(KWH), found.get(GPU_HOUR), currency, unknown)

    def of(self, joules: float | None, gpu_hours: float) -> tuple[float | None, str | None]:
        """Return what some energy and time of GPUs cost, or why that is not known."""
        if self.unknown is not None:
            return None, self.unknown
        if self.kwh is not None and joules is None:
            return None, "no power is read"
        energy = (self.kwh or 0.0) * (joules or 0.0) / JOULES_PER_KWH
        return energy + (self.gpu_hour or 0.0) * gpu_hours, None


def _number(text: str) -> float | None:
    try:
        price = float(text)
    except ValueError:
        return None
    return price if math.isfinite(price) and price >= 0 else None

"""How far back a fleet is asked about: ``24h``, ``7d``."""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.core.errors import UsageProblem

DAY: Final = "24h"
SHORTEST_SECONDS: Final = 300
LONGEST_SECONDS: Final = 90 * 86400
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
_WINDOW: Final = re.compile(r"([0-9]{1,4})([mhdw])")


def seconds(text: str) -> int:
    """Return how long that is."""
    found = _WINDOW.fullmatch(text.strip())
    length = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not SHORTEST_SECONDS <= length <= LONGEST_SECONDS:
        raise UsageProblem(
            f"'{text}' is no time to look back.", "From 5 minutes to 90 days: --since 24h, 7d, 30m"
        )
    return length

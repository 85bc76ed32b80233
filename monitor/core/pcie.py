"""The peak throughput of a PCIe link, by generation and lanes."""

from __future__ import annotations

from typing import Final

# Bytes per second of one lane in one direction: transfers per second less the line code (8b/10b,
# 128b/130b, and 242 of 256 bytes of a flit). Packet headers take some more.
LANE: Final[dict[int, float]] = {
    1: 2.5e9 / 8 * 8 / 10,
    2: 5e9 / 8 * 8 / 10,
    3: 8e9 / 8 * 128 / 130,
    4: 16e9 / 8 * 128 / 130,
    5: 32e9 / 8 * 128 / 130,
    6: 64e9 / 8 * 242 / 256,
}


def limit(generation: float | None, width: float | None) -> float | None:
    """Return the bytes per second of a link in one direction; ``None`` where unknown."""
    if generation is None or width is None or round(generation) not in LANE or width <= 0:
        return None
    return LANE[round(generation)] * round(width)

"""What pages of memory cost that the kernel hands out anew: cleared and mapped at first touch."""

from __future__ import annotations

from typing import Final

PAGE: Final = 4096
# To map and clear a page, to fetch it into the caches, and to give it back: 0.8 us on a machine of
# its own; in a virtual one, where each page is looked up twice, 1.3 to 2 us
# (``benchmarks/unit_costs.py``).
FAULT_S: Final = (0.8e-6, 2.0e-6)

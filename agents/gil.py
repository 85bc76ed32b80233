"""Whether this Python was built with its one lock, on which what we do in its threads rests."""

from __future__ import annotations

import sys

NO_GIL = "it needs the GIL, and this Python was built without one"


def has_gil() -> bool:
    """Tell whether it was."""
    return "t" not in getattr(sys, "abiflags", "")

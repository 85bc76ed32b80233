"""What the agent says once of itself, the process, and its Python."""

from __future__ import annotations

import os
import sys

from .wire import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


NO_GIL = "it needs the GIL, and this Python was built without one"


def has_gil() -> bool:
    """Tell whether this Python was built with its one lock, which our work in its threads needs."""
    return "t" not in getattr(sys, "abiflags", "")


def facts(method: str) -> dict[str, Any]:
    """Return the facts of hello; no command line and no environment, which hold secrets."""
    return {
        "version": VERSION,
        "method": method,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "uid": os.geteuid(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "gil": has_gil(),
    }

"""What the agent says of itself and of the process, once."""

from __future__ import annotations

import os
import sys

from .gil import has_gil
from .wire import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def facts(method: str) -> dict[str, Any]:
    """Return them; no command line and no environment, which hold secrets."""
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

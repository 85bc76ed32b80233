"""Progress while a long file is read: one line on the terminal, erased at the end."""

from __future__ import annotations

import sys
import time
from typing import Final, Self, TextIO

from whyidle.monitor.render.escape import printable

# A file that is read within this time needs no line.
PATIENCE: Final = 1.0
LONGEST_NAME: Final = 40
_BETWEEN = 0.1
_CLEAR = "\r\033[K"


class Progress:
    """Called with the bytes read so far; shows them only once the user has waited."""

    def __init__(self, name: str, out: TextIO | None = None) -> None:
        # It must stay on one line: wrapped text could not be erased.
        self._name = printable(name)[-LONGEST_NAME:]
        self._out = out or sys.stderr
        self._due = time.monotonic() + PATIENCE if self._out.isatty() else float("inf")
        self._shown = False

    def __call__(self, used: int, size: int) -> None:
        """Show the share of the file that is read, now and then."""
        if (now := time.monotonic()) < self._due:
            return
        self._due, self._shown = now + _BETWEEN, True
        done = f"{min(used / size, 1):4.0%}" if size else ""
        said = f"reading {self._name} {done}" if used < size else f"analysing {self._name}"
        self._out.write(f"{_CLEAR}{said}")
        self._out.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            self._out.write(_CLEAR)
            self._out.flush()

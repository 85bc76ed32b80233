"""The keys of a terminal, one by one; the terminal is given back as it was."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from typing import Any, Final

UP: Final = "up"
DOWN: Final = "down"
ESCAPE: Final = "escape"
# As terminals send them, in either of their modes.
_SEQUENCES: Final = {
    "\x1b[A": UP, "\x1bOA": UP, "\x1b[B": DOWN, "\x1bOB": DOWN, "\x1b": ESCAPE,
}  # fmt: skip
_LOCAL: Final = 3
_MOST: Final = 64


class Keyboard:
    """Standard input while it is a terminal that is ours to read."""

    def __init__(self) -> None:
        self._handle: int | None = None
        self._before: list[Any] | None = None

    def open(self) -> int | None:
        """Hear single keys from now on; ``None``: there is no keyboard for us."""
        with contextlib.suppress(OSError, ValueError, AttributeError, termios.error):
            handle = sys.stdin.fileno()
            if not _is_ours(handle):
                return None
            self._before = termios.tcgetattr(handle)
            ours = termios.tcgetattr(handle)
            # Ctrl-C stays a signal.
            ours[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(handle, termios.TCSANOW, ours)
            self._handle = handle
        return self._handle

    def read(self) -> list[str] | None:
        """Return the keys that were pressed; ``None``: nobody presses any more."""
        if self._handle is None:
            return None
        if not _is_ours(self._handle):
            # In the background a read would stop us.
            return []
        try:
            typed = os.read(self._handle, _MOST).decode(errors="ignore")
        except OSError:
            return None
        return split(typed) if typed else None

    def close(self) -> None:
        """Give the terminal back; what was typed meanwhile is not for the shell."""
        if self._handle is None or self._before is None:
            return
        with contextlib.suppress(OSError, termios.error):
            if _is_ours(self._handle):
                termios.tcsetattr(self._handle, termios.TCSANOW, self._before)
                termios.tcflush(self._handle, termios.TCIFLUSH)
        self._handle = None


def split(typed: str) -> list[str]:
    """Return what was typed as single keys; an arrow is several letters."""
    keys = []
    while typed:
        found = next((each for each in _SEQUENCES if typed.startswith(each)), typed[0])
        keys.append(_SEQUENCES.get(found, found))
        typed = typed[len(found) :]
    return keys


def _is_ours(handle: int) -> bool:
    """Tell whether we are in the foreground of this terminal."""
    try:
        return os.tcgetpgrp(handle) == os.getpgrp()
    except OSError:
        return False

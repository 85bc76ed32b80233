"""The most memory that the job has held, as the kernel remembers it."""

from __future__ import annotations

import os

from .duties import SECOND

_KIB = 1024
_LINE = b"\nVmHWM:"
_MOST_BYTES = 8192
# Each look is three calls of the kernel's, which is felt; nothing is lost between two. They come
# more seldom the older this is, by this share of its age, up to this.
_SHARE = 1 / 8
_LONGEST_NS = 5 * SECOND
# A tick that comes a little early is not to be one look lost.
_EARLY_NS = SECOND // 2


class Peak:
    """Looks at it now and then."""

    def __init__(self, now: int) -> None:
        self._began = self._due = now
        self._found: int | None = None

    def look(self, now: int) -> int | None:
        """Return the bytes at the last look, which may be this one."""
        if now >= self._due:
            found = _peak()
            # A job without a free descriptor has still held what it held.
            self._found = self._found if found is None else found
            self._due = now + min(_LONGEST_NS, int((now - self._began) * _SHARE)) - _EARLY_NS
        return self._found


def _peak() -> int | None:
    """Return the kernel's mark of this program's own memory.

    ``getrusage`` gives a program that was started by a bigger one the peak of its parent.
    """
    try:
        number = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(number, _MOST_BYTES)
    finally:
        os.close(number)
    _, found, rest = text.partition(_LINE)
    words = rest.split(None, 1)
    return int(words[0]) * _KIB if found and words and words[0].isdigit() else None

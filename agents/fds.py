"""A descriptor that recognises its file.

A job may close every number it finds (daemons do) and open files of its own under these numbers:
what we write or close by number alone could then be the job's. Numbers, not objects: an object
would close itself, and warn, whenever the job's interpreter drops it.
"""

from __future__ import annotations

import os
from contextlib import suppress


class Descriptor:
    """A number, and which file it was when we opened it."""

    __slots__ = ("_mark", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._mark = _mark(number)

    def is_ours(self) -> bool:
        """Tell whether the number still means what we opened."""
        return self._mark is not None and _mark(self.number) == self._mark

    def close(self) -> None:
        """Close it, unless it is no longer ours; a second time does nothing."""
        ours = self.is_ours()
        self._mark = None
        if ours:
            with suppress(OSError):
                os.close(self.number)


class WakePipe:
    """A pipe to ourselves: ends a wait from another thread."""

    __slots__ = ("_write", "read")

    def __init__(self) -> None:
        ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.read, self._write = map(Descriptor, ends)

    def call(self) -> None:
        """End the wait that is on, or else the next one."""
        if self._write.is_ours():
            with suppress(OSError):
                os.write(self._write.number, b"!")

    def answer(self) -> None:
        """Read the calls that came."""
        with suppress(OSError):
            os.read(self.read.number, 64)

    def is_ours(self) -> bool:
        """Tell whether both ends are."""
        return self.read.is_ours() and self._write.is_ours()

    def close(self) -> None:
        """Close both ends."""
        self.read.close()
        self._write.close()


def _mark(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino

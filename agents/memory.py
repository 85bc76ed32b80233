"""The job's own memory, as the kernel counts it."""

from __future__ import annotations

import os

_KIB = 1024
_LINES = (b"\nVmRSS:", b"\nVmHWM:")
_MOST_BYTES = 8192


def memory() -> tuple[int | None, int | None]:
    """Return the resident bytes now and at their peak.

    The peak is the kernel's mark of this program's own memory: ``getrusage`` gives a program that
    was started by a bigger one the peak of its parent.
    """
    try:
        number = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None, None
    try:
        text = os.read(number, _MOST_BYTES)
    finally:
        os.close(number)
    now, peak = (_bytes(text, line) for line in _LINES)
    return now, peak


def _bytes(text: bytes, line: bytes) -> int | None:
    _, found, rest = text.partition(line)
    words = rest.split(None, 1)
    return int(words[0]) * _KIB if found and words and words[0].isdigit() else None

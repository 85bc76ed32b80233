"""Where a JSON list of objects may be cut, and what a decoder's complaint says about a cut."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

# How many commas are tried, and how far from the end they are searched first.
_TRIES: Final = 8
_WINDOW: Final = 64 << 10
_BOUNDARY: Final = re.compile(rb"\}\s*(,)\s*\{")
_AT: Final = re.compile(r"\(byte (\d+)\)")


class Fault(NamedTuple):
    """Why a piece of text is no list of events."""

    kind: Literal["unfinished", "ended", "damaged"]
    at: int


def fault_of(message: str, size: int) -> Fault:
    """Say what a decoder's complaint means for a text of this size."""
    found = _AT.search(message)
    at = int(found[1]) if found else 0
    if "truncated" in message:
        return Fault("unfinished", size)
    if "trailing characters" in message:
        return Fault("ended", at)
    return Fault("damaged", at)


def boundaries(text: bytearray) -> list[int]:
    """Return some commas that may stand between two events, the last one first."""
    for start in (max(0, len(text) - _WINDOW), 0):
        found = [match.start(1) for match in _BOUNDARY.finditer(text, start)]
        if found:
            return found[: -_TRIES - 1 : -1]
    return []


def middle(text: bytes, start: int, end: int) -> int:
    """Return the comma between two events that is nearest to the middle, or -1."""
    found = _BOUNDARY.search(text, (start + end) // 2, end)
    if found:
        return found.start(1)
    before = [match.start(1) for match in _BOUNDARY.finditer(text, start, end)]
    return before[-1] if before else -1

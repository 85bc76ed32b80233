"""Whether two programs print the same results.

Which of the printed numbers are results is seen by running the original more than once: what it
prints again is a result, what differs each time is a clock or chance. Only results are compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

_NUMBER: Final = re.compile(r"(?<![\w.])[-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w])%?")
NOTHING_PRINTED: Final = (
    "the program prints no number that its repetition prints again: name a command that does, "
    "--check CMD"
)
Key = tuple[str, tuple[int, ...], int]
Equal = Literal["equal", "different", "unknown"]


@dataclass(frozen=True, slots=True)
class Results:
    """How the printed results of two programs compare."""

    equal: Equal
    compared: int
    # The largest, as a share of the value.
    difference: float | None
    why: str | None = None


def compared(originals: Sequence[str], changed: Sequence[str], tolerance: float) -> Results:
    """Compare what the runs of both programs printed."""
    mine = [_numbers(text) for text in originals]
    theirs = [_numbers(text) for text in changed]
    if not mine or not theirs:
        return Results("unknown", 0, None, NOTHING_PRINTED)
    again = [
        key for key, value in mine[0].items()
        if all(key in other and _apart(value, other[key]) <= tolerance for other in mine[1:])
    ]  # fmt: skip
    apart = [
        (max(_apart(mine[0][key], other[key]) for other in theirs), key)
        for key in again
        if all(key in other for other in theirs)
    ]
    if not apart:
        return Results("unknown", 0, None, NOTHING_PRINTED)
    worst, key = max(apart)
    if worst <= tolerance:
        return Results("equal", len(apart), worst)
    return Results("different", len(apart), worst, f"where it prints: {_line(key)}")


def _line(key: Key) -> str:
    shape, whole, _ = key
    for number in whole:
        shape = shape.replace("\0", str(number), 1)
    return shape.replace("\1", "…").strip()[:80]


def _apart(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))


def _numbers(text: str) -> Mapping[Key, float]:
    """Return every fraction that was printed, by the words and whole numbers around it."""
    found: dict[Key, float] = {}
    for line in text.replace("\r", "\n").splitlines():
        words, fractions, whole = [], [], []
        end = 0
        for match in _NUMBER.finditer(line):
            words.append(line[end : match.start()])
            end = match.end()
            number = match[0].rstrip("%").replace(",", "").replace("_", "")
            try:
                value = float(number)
            except ValueError:
                words.append(match[0])
                continue
            if re.fullmatch(r"[-+]?\d+", number) and not match[0].endswith("%"):
                whole.append(int(number))
                words.append("\0")
            else:
                fractions.append(value)
                words.append("\1")
        shape = "".join([*words, line[end:]])
        for place, value in enumerate(fractions):
            found.setdefault((shape, tuple(whole), place), value)
    return found

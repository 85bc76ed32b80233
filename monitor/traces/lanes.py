"""Spans on as few lanes as needed so that on each of them they lie apart or inside each other."""

from __future__ import annotations

from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Ints

# Nobody looks at more; what does not fit lies on the last one.
MOST: Final = 50


def lanes(start: Ints, end: Ints) -> Ints:
    """Return a lane for each span; they are sorted by start, and the longer of two comes first."""
    found = np.zeros(len(start), np.int64)
    if len(start) < 2 or (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return found
    # The ends of what is open on each lane, the innermost last.
    stacks: list[list[int]] = [[]]
    for at, (begin, last) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        found[at] = lane = _room(stacks, begin, last)
        stacks[lane].append(last)
    return found


def _room(stacks: list[list[int]], begin: int, end: int) -> int:
    """Return the first lane where a span crosses nothing; a new one if there is none."""
    for lane, stack in enumerate(stacks):
        while stack and stack[-1] <= begin:
            stack.pop()
        if not stack or end <= stack[-1]:
            return lane
    if len(stacks) < MOST:
        stacks.append([])
    return len(stacks) - 1

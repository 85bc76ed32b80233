"""Which collective of one rank is which of another, and how far their clocks are apart.

All ranks of a group call its collectives in one order, so it is enough to know with which of them
each file begins. A collective ends on all of its ranks at once: the right beginning is the one with
which the ends differ by the same time again and again, which is the difference of the clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Ints
from whyidle.monitor.traces.ranks.member import Member

# Of the collectives that two ranks share, so many must be the same: a profiler may drop some.
_AGREE: Final = 0.95
# And so much of the shorter file must be in the other: a few rows are alike by chance.
_OVERLAP: Final = 0.25
# Beginnings that are tried around the likely ones.
_AROUND: Final = 32
# Ends of one collective on two ranks differ by less than this, or this part of its length; those of
# groups that have nothing to do with each other differ as much as their steps do.
TOGETHER_NS: Final = 50_000
TOGETHER: Final = 0.1
# Where nothing else tells two beginnings apart, this much is no difference.
_SAME: Final = 1.2


@dataclass(frozen=True, slots=True)
class Part:
    """The collectives of one group on one rank, by their rows in the member."""

    rank: int  # which member
    member: Member
    rows: Ints
    what: Ints  # numbers that mean the same on all ranks

    @property
    def start(self) -> Ints:
        """When each began, by the clock of the rank."""
        return self.member.start[self.rows]

    @property
    def end(self) -> Ints:
        """When each ended."""
        return self.member.end[self.rows]


@dataclass(frozen=True, slots=True)
class Match:
    """Where the collectives of a rank stand among those of the first rank of its group."""

    shift: int | None  # of row to row; None: the rows are in ``place``
    place: Ints  # for each row of the rank, the row of the first one; -1: none
    clock_ns: float  # its clock less that of the first
    apart_ns: float  # how far the ends are apart otherwise, in the middle
    same: float  # which part of what both have is of one kind

    @property
    def agrees(self) -> bool:
        """Whether both did the same."""
        return self.same >= _AGREE


def match(first: Part, other: Part) -> Match | None:
    """Find the rows of another rank among those of the first; None: they share nothing."""
    if (found := _by_sequence(first, other)) is not None:
        return found
    best: Match | None = None
    for shift in _likely(first, other):
        found = _shifted(first, other, shift)
        if found is None or not found.agrees:
            continue
        # The likelier one comes first, and stays unless another fits clearly better.
        if best is None or _SAME * found.apart_ns + 1000 < best.apart_ns:
            best = found
    return best


def together(found: Match, first: Part, other: Part, *, on_host: bool) -> bool:
    """Tell whether the ends are so near each other that they are of the same collectives.

    On a host a thread has to get a core to see the end: who was waited for sees the shortest ones.
    """
    usual = float(np.median(other.end - other.start))
    if on_host:
        usual = max(usual, float(np.median(first.end - first.start)))
    return found.apart_ns <= max(TOGETHER_NS, TOGETHER * usual)


def _by_sequence(first: Part, other: Part) -> Match | None:
    """Where both files number the collectives of the group, the numbers say it all."""
    a, b = first.member.sequence[first.rows], other.member.sequence[other.rows]
    if (a < 0).mean() > 1 - _AGREE or (b < 0).mean() > 1 - _AGREE:
        return None
    # What is sent together has one number.
    keys_a, keys_b = _with_turn(a), _with_turn(b)
    order = np.argsort(keys_a)
    at = np.minimum(np.searchsorted(keys_a[order], keys_b), len(order) - 1)
    place = np.where(keys_a[order][at] == keys_b, order[at], -1)
    return _judged(first, other, place, None)


def _with_turn(sequence: Ints) -> Ints:
    order = np.argsort(sequence, kind="stable")
    first = np.searchsorted(sequence[order], sequence[order])
    turn = np.empty(len(sequence), np.int64)
    turn[order] = np.arange(len(sequence)) - first
    found: Ints = sequence * 4096 + np.minimum(turn, 4095)
    return found


def _shifted(first: Part, other: Part, shift: int) -> Match | None:
    place = np.arange(len(other.rows)) + shift
    return _judged(first, other, np.where(place < len(first.rows), place, -1), shift)


def _judged(first: Part, other: Part, place: Ints, shift: int | None) -> Match | None:
    both = np.flatnonzero(place >= 0)
    if len(both) < max(1, _OVERLAP * min(len(first.rows), len(other.rows))):
        return None
    same = float((first.what[place[both]] == other.what[both]).mean())
    differ = other.end[both] - first.end[place[both]]
    clock = float(np.median(differ))
    apart = float(np.median(np.abs(differ - clock)))
    return Match(shift, np.maximum(place, -1), clock, apart, same)


def _likely(first: Part, other: Part) -> Iterator[int]:
    """Yield beginnings, the likeliest first: by the number of a step, by the clocks, in turn."""
    seen: set[int] = set()
    guesses = [
        *_by_steps(first, other),
        *_by_clock(first, other),
        0,
        len(first.rows) - len(other.rows),
    ]
    around = [g + d for d in range(1, _AROUND + 1) for g in guesses[:1] for d in (d, -d)]
    most = len(first.rows), len(other.rows)
    for shift in (*guesses, *around):
        if shift not in seen and -most[1] < shift < most[0]:
            seen.add(shift)
            yield shift


def _by_steps(first: Part, other: Part) -> Iterator[int]:
    numbers = np.intersect1d(first.member.step_number, other.member.step_number)
    for number in numbers[numbers >= 0][:1].tolist():
        yield _rows_before(first, number) - _rows_before(other, number)


def _rows_before(part: Part, number: int) -> int:
    at = int(np.flatnonzero(part.member.step_number == number)[0])
    return int(np.searchsorted(part.end, part.member.step_start[at]))


def _by_clock(first: Part, other: Part) -> Iterator[int]:
    a, b = first.member.origin_ns, other.member.origin_ns
    if a is None or b is None or not len(other.rows):
        return
    near = int(np.searchsorted(first.end, other.end[0] + (b - a)))
    yield from (near, near - 1, near + 1)

"""The period of a sequence of names: what repeats, found without knowing what the names mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.traces.grouping import numbered
from whyidle.monitor.traces.model import Flags, Ids

# Tried on 15 recorded traces with their markers hidden: less of a match is no repetition.
LEAST_MATCH: Final = 0.75
# Of one name so much that each of its uses is a period, and what lies between is not counted.
CONSTANT: Final = 0.95
# A longer period is believed over a shorter one when it does away with this much of the mismatch.
MOSTLY: Final = 0.5
# Matches, and lengths of periods, may differ by so much: an operation more or less.
TOLERANCE: Final = 0.02

# How many following names distinguish two uses of a name, and how many distances each may propose:
# the search stays linear in the length of the sequence.
_WIDTHS: Final = (1, 8, 64)
_PROPOSALS: Final = 24
# How far operations may drift from one period to the next, and how many periods are tried so.
_DRIFT: Final = 8
_DRIFTING: Final = 8

Hashes = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Period:
    """So many entries make a period, and this share of them recurs one period later."""

    length: int
    match: float


def period(names: Ids, bits: float, *, constant: bool = False) -> Period | None:
    """Return the period of a sequence, or None where chance explains it as well.

    The shortest period counts unless a longer one explains where it fails: an inner loop is no
    step. ``bits`` is how surprising the match must be: 10 means one chance in a thousand.
    ``constant`` allows a period of one entry, a name that nearly every entry carries.
    """
    length = len(names)
    if length < 4:
        return None
    names = numbered(names.astype(np.int64))[1].astype(np.int32)
    chance = float(np.sum((np.bincount(names) / length) ** 2))
    one = _score(names, 1)
    scored = [_score(names, p) for p in _candidates(names)]
    good = [p for p in scored if _explains(p, one) and _believable(p, length, chance, bits)]
    if constant and one.match >= CONSTANT:
        good.insert(0, one)
    best = _lengthened(names, good[0], scored) if good else None
    if best is None or best.match < CONSTANT:
        drifting = _drifting(names, scored, chance, bits)
        best = drifting if drifting and (not best or _explains(drifting, best)) else best
    return best if best and 2 * best.length <= length else None


def _score(names: Ids, p: int) -> Period:
    pairs = len(names) - p
    return Period(p, int(np.count_nonzero(names[p:] == names[:-p])) / pairs)


def _candidates(names: Ids) -> list[int]:
    """Distances at which names come again, the frequent ones and those of rare names."""
    votes: set[int] = set()
    for width in _WIDTHS:
        hashed = contexts(names, width)
        order = np.argsort(hashed, kind="stable")
        distance = np.diff(order)
        same = np.diff(hashed[order]) == 0
        uses = np.bincount(hashed)[hashed[order[1:]]][same]
        distance = distance[same]
        votes.update(_commonest(np.bincount(distance)))
        votes.update(_commonest(np.bincount(distance, 1 / uses)))
    return sorted(p for p in votes if 2 <= p <= len(names) - 2)


def _commonest(votes: NDArray[Any]) -> list[int]:
    some = np.flatnonzero(votes)
    if len(some) > _PROPOSALS:
        some = some[np.argpartition(votes[some], -_PROPOSALS)[-_PROPOSALS:]]
    return [int(distance) for distance in some]


def contexts(names: Ids, width: int) -> Hashes:
    """Hash each name together with those that follow, ``width`` in all: a power of two.

    After the last name comes the first: where the record holds whole periods, that is right.
    """
    hashed = (names.astype(np.uint32) + np.uint32(1)) * np.uint32(2654435761)
    step = 1
    while step < width:
        following = np.roll(hashed, -step)
        hashed = (hashed ^ (hashed >> np.uint32(15))) * np.uint32(2246822519) + following
        step *= 2
    return (hashed >> np.uint32(16)).astype(np.uint16)


def _believable(p: Period, length: int, chance: float, bits: float) -> bool:
    """Whether this is more repetition than the frequencies of the names alone would give."""
    if 2 * p.length > length or p.match < LEAST_MATCH or chance >= 1:
        return False
    if (p.match - chance) / (1 - chance) < LEAST_MATCH:
        return False
    return (length - p.length) * _surprise(p.match, chance) >= bits


def _surprise(match: float, chance: float) -> float:
    """Bits that each comparison brings: the relative entropy of the match to chance."""
    hit = match * np.log2(match / chance)
    miss = (1 - match) * np.log2((1 - match) / (1 - chance)) if match < 1 else 0.0
    return float(hit + miss)


def _explains(longer: Period, shorter: Period) -> bool:
    """Whether a longer period does away with most of what a shorter one does not match."""
    return 1 - longer.match <= MOSTLY * (1 - shorter.match)


def _lengthened(names: Ids, best: Period, scored: list[Period]) -> Period:
    """Follow inner loops outwards, as long as a longer period explains most of the mismatch."""
    for longer in scored:
        if longer.length > best.length and _explains(longer, best):
            breaks: Flags = names[best.length :] != names[: -best.length]
            best = longer if _recur(breaks, longer.length) else best
    return best


def _recur(breaks: Flags, length: int) -> bool:
    """Whether the places where a shorter period fails come again one longer period later."""
    if length >= len(breaks):
        return False
    again = breaks[length:] & breaks[:-length]
    return int(np.count_nonzero(again)) >= 2


def _drifting(names: Ids, scored: list[Period], chance: float, bits: float) -> Period | None:
    """A period in which an operation more or less shifts all that follow it.

    Sequences of names are compared, not single names, and may come a little early or late.
    """
    hashed = contexts(names, _DRIFT)
    one = _loose_score(hashed, 1)
    long = [p for p in scored if 4 * _DRIFT <= p.length <= len(names) // 2]
    likely = sorted(long, key=lambda p: -p.match)[:_DRIFTING]
    loose = sorted((_loose_score(hashed, p.length) for p in likely), key=lambda p: p.length)
    good = [p for p in loose if _explains(p, one) and _believable(p, len(names), chance, bits)]
    if not good:
        return None
    best = max(good, key=lambda p: p.match)
    shortest = next(p for p in good if _is_as_good(hashed, p, best))
    return Period(_sharpened(hashed, shortest.length), shortest.match)


def _is_as_good(hashed: Hashes, shorter: Period, best: Period) -> bool:
    """Whether what a period fails to match is little more, or only happened to be where it is.

    Of a long period fewer entries have another to be compared with, and fewer are seen to fail.
    """
    if shorter.match >= best.match - TOLERANCE:
        return True
    if _explains(best, shorter):
        return False
    breaks: Flags = ~np.any(_hits(hashed, shorter.length), axis=0)
    return _could_recur(breaks, best.length) and not _recur(breaks, best.length)


def _could_recur(breaks: Flags, length: int) -> bool:
    """Whether the record is long enough to show most failing places once more."""
    if length >= len(breaks):
        return False
    seen = np.count_nonzero(breaks[length:]) + np.count_nonzero(breaks[:-length])
    return bool(seen >= np.count_nonzero(breaks))


def _loose_score(hashed: Hashes, p: int) -> Period:
    hits = _hits(hashed, p)
    return Period(p, float(np.mean(np.any(hits, axis=0))) if hits.size else 0.0)


def _sharpened(hashed: Hashes, p: int) -> int:
    """The distance near this one at which most recurs."""
    return max(1, p - _DRIFT) + int(np.argmax(np.count_nonzero(_hits(hashed, p), axis=1)))


def _hits(hashed: Hashes, p: int) -> Flags:
    """For each distance near this one, the entries that recur there."""
    shifts = range(max(1, p - _DRIFT), p + _DRIFT + 1)
    pairs = max(0, len(hashed) - shifts[-1])
    return np.array([hashed[:pairs] == hashed[shift : shift + pairs] for shift in shifts])

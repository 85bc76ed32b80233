"""Many walks at once from event to event: each says how long it is, so one can only walk.

A walk begins wherever the bytes look like the begin of an event. That may be wrong: ``chain``
proves each walk, or puts it right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.traces.model import Flags, Ints
from whyidle.monitor.traces.xplane.vector import Buffer, Words

EVENT: Final = 0x22
_U = np.uint64
_ONE: Final = _U(1)
# Bytes from one walk's begin to the next one's, and how few walks at once are not worth it.
_STRIDE: Final = 2 << 10
_FEW: Final = 24
# Words in which an event is looked for at each of these places.
_WINDOW: Final = 24


@dataclass(slots=True)
class Piece:
    """A part of one line in a buffer; it begins with a field of the line."""

    line: int
    begin: int
    end: int
    beyond: int  # bytes of the line that are not in the buffer yet


@dataclass(slots=True)
class Walks:
    """Walks in the order of the buffer."""

    piece: Ints
    begin: Ints
    stop: Ints  # where the next walk begins
    limit: Ints  # of the piece
    finish: Ints


def begin(buffer: Buffer, pieces: list[Piece]) -> Walks:
    """Choose where to begin: at each piece, and inside it where something looks like an event."""
    sure = np.array([piece.begin for piece in pieces], np.int64)
    ends = np.array([piece.end for piece in pieces], np.int64)
    count = (ends - sure - 1) // _STRIDE
    before = np.repeat(np.cumsum(count) - count, count)
    around = np.repeat(sure, count) + (np.arange(count.sum()) - before + 1) * _STRIDE
    begin, owner = _seen(buffer, around)
    owner = np.repeat(np.arange(len(pieces)), count)[owner]
    inside = begin < ends[owner]
    begin = np.r_[sure, begin[inside]]
    owner = np.r_[np.arange(len(pieces)), owner[inside]]
    order = np.argsort(begin, kind="stable")
    begin, owner = begin[order], owner[order]
    stop = np.minimum(np.r_[begin[1:], ends[-1:]], ends[owner])
    return Walks(owner, begin, stop, ends[owner], begin.copy())


def _seen(buffer: Buffer, around: Ints) -> tuple[Ints, Ints]:
    """Return what looks like the begin of an event behind these places, and behind which one."""
    width = _WINDOW * 8
    around = around[around + width < len(buffer.data)]
    text = buffer.runs(_WINDOW)[around].view(np.uint8)
    # An event: its tag and length, metadata_id of one to three bytes, then offset_ps.
    more = text > 127
    then = text == 0x10
    name = then[4:] & more[2:-2] & more[1:-3]
    name |= then[3:-1] & more[1:-3]
    name |= then[2:-2]
    name &= text[:-4] == 0x08
    looks = np.where(more[1:-6], name[3:], name[2:-1]) & (text[:-7] == EVENT)
    hits = np.flatnonzero(looks)
    window, place = hits // width, hits % width
    hits = np.flatnonzero(place < width - 8)
    window, first = np.unique(window[hits], return_index=True)
    return around[window] + place[hits][first], window


def walk(buffer: Buffer, walks: Walks) -> Ints:
    """Walk all at once, an event a turn; note where each walk had to end."""
    words, found = buffer.words, [walks.begin[:0]]
    who = np.arange(len(walks.begin))
    at, stop, limit = walks.begin, walks.stop, walks.limit
    while len(who) >= _FEW:
        word = words[at]
        length, good = _length(word)
        after = at + length
        good &= after <= limit
        if not good.all():
            lost = ~good
            walks.finish[who[lost]] = at[lost]
            who, at, after = who[good], at[good], after[good]
            stop, limit = stop[good], limit[good]
        found.append(at)
        on = after < stop
        if on.all():
            at = after
        else:
            done = ~on
            walks.finish[who[done]] = after[done]
            who, at, stop, limit = who[on], after[on], stop[on], limit[on]
    walks.finish[who] = at
    return np.sort(np.concatenate(found))


def _length(word: Words) -> tuple[Ints, Flags]:
    """Return how long events are, their heads too, by their first bytes; and which are events.

    One with more than two bytes of length counts as none: it is rare, and left to the stitching.
    """
    good = (word & _U(0xFF)) == EVENT
    length = ((word >> _U(8)) & _U(0x7F)) + _U(2)
    more = word & _U(0x8000)
    if more.any():
        more >>= _U(15)
        length += more * (((word >> _U(9)) & _U(0x3F80)) + _ONE)
        good &= ((word >> _U(23)) & more) == 0
    return length.view(np.int64), good

"""The stats of many events at once: all their first ones, then all their second ones, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import text
from whyidle.monitor.traces.model import Flags, Ints
from whyidle.monitor.traces.xplane.layouts import Places
from whyidle.monitor.traces.xplane.odd import MOST_STATS
from whyidle.monitor.traces.xplane.vector import Buffer, Words, varints

STAT: Final = 0x22
# What a value is, by its tag.
UINT, INT, STRING, REF = 0x18, 0x20, 0x2A, 0x38
# No text that we keep is longer.
MOST: Final = 4096
_ID: Final = 0x08
_U = np.uint64
_ONE: Final = _U(1)


def walk(
    buffer: Buffer, at: Ints, end: Ints, rows: Ints, ids: tuple[int, ...]
) -> tuple[list[Places], Ints]:
    """Walk the stats from ``at`` to ``end`` of each event; return those asked for, and odd events.

    An odd event is to be read again, by itself: what was found in it does not count.
    """
    places: list[Places] = []
    odd = [rows[:0]]
    at, end = at[rows], end[rows]
    # A turn costs the same for one event as for hundreds: what has stats without end is odd.
    for _ in range(MOST_STATS):
        if not len(rows):
            break
        key, tag, after, plain = _heads(buffer.words[at])
        after += at
        plain &= (after <= end) & (at + tag < after)
        if not plain.all():
            odd.append(rows[~plain])
        for wanted in ids:
            hit = np.flatnonzero(key == wanted)
            if len(hit):
                places.append((wanted, rows[hit], (at + tag)[hit]))
        on = plain & (after < end)
        if on.all():
            at = after
        else:
            rows, at, end = rows[on], after[on], end[on]
    return places, np.concatenate([*odd, rows])


def _heads(word: Words) -> tuple[Ints, Ints, Ints, Flags]:
    """Read the first eight bytes of stats: which one, where the tag of its value is, and its end.

    The last says whether that was all: two bytes of length, three of metadata_id at most.
    """
    more = (word >> _U(15)) & _ONE
    length = ((word >> _U(8)) & _U(0x7F)) + more * ((word >> _U(9)) & _U(0x3F80))
    inner = word >> (_U(16) + (more << _U(3)))
    wide = (inner >> _U(15)) & _ONE
    wider = (inner >> _U(23)) & wide
    key = ((inner >> _U(8)) & _U(0x7F)) + wide * ((inner >> _U(9)) & _U(0x3F80))
    key += wider * ((inner >> _U(10)) & _U(0x1FC000))
    longer = ((word >> _U(23)) & more) | ((inner >> _U(31)) & wider)
    plain = ((word & _U(0xFF)) == STAT) & ((inner & _U(0xFF)) == _ID) & (longer == 0)
    head = more + _U(2)
    tag = head + _U(2) + wide + wider
    return key.view(np.int64), tag.view(np.int64), (head + length).view(np.int64), plain


def values(buffer: Buffer, at: Ints) -> tuple[Ints, Ints, Ints]:
    """Decode values by the places of their tags: the tags, the numbers, and where texts begin.

    The number of a text is its length; a number is -1 where it is negative, which no id is.
    """
    number, size = varints(buffer.words[at + 1])
    if not size.all():
        number[size == 0] = -1
    return buffer.bytes[at].astype(np.int64), number, at + 1 + size


def texts(buffer: Buffer, begins: Ints, lengths: Ints) -> Iterator[str]:
    """Give the texts at these places."""
    for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
        yield text(buffer.data[begin : begin + min(max(length, 0), MOST)])

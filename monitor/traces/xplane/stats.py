"""The stats of many events at once: all their first ones, then all their second ones, and so on.

What a stat says is one number: that of a number, or of what refers to a text; and for a text
itself ``TEXT`` less the place of its tag in the buffer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whyidle.monitor.core.protobuf import Damaged, text, varint
from whyidle.monitor.traces.model import Flags, Ints
from whyidle.monitor.traces.xplane.odd import MOST_STATS
from whyidle.monitor.traces.xplane.vector import Buffer, Words, varints

STAT: Final = 0x22
# What a value is, by its tag.
UINT, INT, STRING, REF = 0x18, 0x20, 0x2A, 0x38
# No stat of that name; a number, or what refers to a text, that is too large; a text.
NONE, UNKNOWN, TEXT = np.iinfo(np.int64).min, -1, -2
# No text that we keep is longer.
MOST: Final = 4096
_ID: Final = 0x08
_U = np.uint64
_ONE: Final = _U(1)


def walk(
    buffer: Buffer, at: Ints, end: Ints, rows: Ints, ids: tuple[int, ...]
) -> tuple[Ints, Ints]:
    """Walk the stats from ``at`` to ``end`` of each event.

    Return for each of those asked for where the tag of its value is, or 0; and odd events.
    """
    places = np.zeros((len(ids), len(at)), np.int64)
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
        for mine, wanted in zip(places, ids, strict=True):
            hit = np.flatnonzero(key == wanted)
            mine[rows[hit]] = (at + tag)[hit]
        on = plain & (after < end)
        if on.all():
            at = after
        else:
            rows, at, end = rows[on], after[on], end[on]
    again = np.concatenate([*odd, rows])
    places[:, again] = 0
    return places, again


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


def values(buffer: Buffer, at: Ints, *, numbers: bool) -> Ints:
    """Decode values by the places of their tags."""
    number, size = varints(buffer.words[at + 1])
    number[size == 0] = UNKNOWN
    tag = buffer.bytes[at]
    if numbers:
        return np.where((tag == UINT) | (tag == INT), number, -1)
    return np.where(tag == REF, number, np.where(tag == STRING, TEXT - at, NONE))


def text_at(buffer: Buffer, said: int) -> str:
    """Give the text that a stat said."""
    at = TEXT - said + 1
    try:
        length, begin = varint(buffer.data, at, at + 8)
    except Damaged:
        return ""
    return text(buffer.data[begin : begin + min(length, MOST)])

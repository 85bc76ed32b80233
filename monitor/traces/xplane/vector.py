"""A column of numbers out of a buffer: many varints at once, no loop per event."""

from __future__ import annotations

from mmap import MAP_PRIVATE, mmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.traces.model import Ints

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

# Bytes behind the last one, so that eight can be read at any place, and a little beyond.
PAD: Final = 64

_U = np.uint64
_STOPS: Final = _U(0x8080808080808080)
_PAYLOAD: Final = _U(0x7F7F7F7F7F7F7F7F)
# Times 2**(8k), the top byte of this is k.
_WHICH: Final = _U(0x0001020304050607)
_ONE: Final = _U(1)
# Close the gaps of one bit between seven: pairs, then quadruples, then all.
_CLOSE: Final = (
    (_U(1), _U(0x007F007F007F007F), _U(0x7F007F007F007F00)),
    (_U(2), _U(0x00003FFF00003FFF), _U(0x3FFF00003FFF0000)),
    (_U(4), _U(0x000000000FFFFFFF), _U(0x0FFFFFFF00000000)),
)


def _room(rows: int) -> Ints:
    """Return a column of which few rows are used: not of the heap, where others would touch all."""
    room: Ints = np.frombuffer(mmap(-1, 8 * rows, MAP_PRIVATE), np.int64)
    return room


class Buffer:
    """Some bytes of a file, to be read one by one or by columns; filled again and again."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size + PAD)
        self.view = memoryview(self.data)
        self.bytes: Bytes = np.frombuffer(self.data, np.uint8)
        # The eight bytes that begin at each place.
        self.words: Words = np.ndarray((size + PAD - 8,), "<u8", self.data, strides=(1,))
        # Where the events of it begin and end: none takes less than two bytes.
        self.bodies, self.ends = _room(size // 2 + 1), _room(size // 2 + 1)

    def put(self, at: int, block: Any) -> int:
        """Copy bytes to a place; return the place behind them."""
        self.view[at : at + len(block)] = block
        return at + len(block)


def varints(words: Words) -> tuple[Ints, Ints]:
    """Decode a number at the begin of each word: its value, and its size; 0 where it is longer."""
    # In place: arrays of this many rows stay in the cache, and new ones would not.
    low = ~words
    low &= _STOPS
    spare = ~low
    spare += _ONE
    low &= spare  # the bit that ends the number
    x = low - _ONE
    x &= words
    x &= _PAYLOAD
    for shift, mine, moved in _CLOSE:
        np.bitwise_and(x, moved, out=spare)
        spare >>= shift
        x &= mine
        x |= spare
    np.right_shift(low, _U(7), out=spare)
    spare *= _WHICH
    spare >>= _U(56)
    spare += _ONE
    spare *= low != 0
    return x.view(np.int64), spare.view(np.int64)

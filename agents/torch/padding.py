"""The part ``padding``: how much of the batches is padding, by a look at one in many.

The hook of a loader copies what a batch holds in main memory, and its lengths are counted later, on
the agent's thread: until then nothing of the job's is kept alive.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from ..framework import Part
from ..main_thread import is_ours
from ..modules import need
from .introspect import attributes, is_a
from .loaders import LOOK, batch_looks
from .parameters import Getters, of_c
from .patch import hide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # The shape of a tensor, the bytes of one of its elements, and all of its bytes.
    Copy = tuple[tuple[int, ...], int, bytes]

# Seconds between two looks: few at first, so that a short visit sees some.
EARLY_SECONDS, SECONDS = 5, 60
EARLY_LOOKS = 6
# Looks that are remembered.
MOST_LOOKS = 32
# A look copies at most so much: a copy holds Python's lock, for 0.1 ms.
MOST_BYTES = 1 << 20
# How deep, and through how many things, it looks for tensors.
DEPTH, MOST_THINGS = 4, 32
# Samples in rows, their parts along the second dimension: fewer are channels or columns.
LEAST_ROWS, LEAST_LENGTH = 4, 16
MOST_DIMENSIONS = 3
# Masks and one-hot rows have two values; so many rows, and so much of each, tell.
VALUES, ROWS_OF_VALUES, VALUES_OF_ROW = 3, 4, 64


class Padding(Part):
    """Asks for a look now and then, and counts what it brought."""

    name = "padding"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._copies: deque[list[Copy]] = deque(maxlen=2)
        # Of each look: the length of the rows, of the longest without padding, and their mean.
        self._looks: deque[tuple[int, int, float]] = deque(maxlen=MOST_LOOKS)
        self._number = self._rests = 0

    def begin(self) -> None:
        """Find what a look needs."""
        self._look = _looking(self._copies.append)
        self.hooks.add(batch_looks.clear)

    def second(self, _now: int) -> dict[str, int | None]:
        """Count what the last look brought, and ask for the next."""
        while self._copies:
            self._number += 1
            found = [each for each in map(_lengths, self._copies.popleft()) if each is not None]
            if found:
                self._looks.append(max(found)[1])
        self._rests -= 1
        if self._rests < 0:
            self._rests = EARLY_SECONDS if self._number < EARLY_LOOKS else SECONDS
            batch_looks[LOOK] = self._look
        return {}

    def facts(self) -> dict[str, Any]:
        """Return the means of the looks."""
        number = len(self._looks)
        if not number:
            return {}
        length, longest, mean = (sum(each) / number for each in zip(*self._looks))
        return {
            "padding": {
                "length": round(length),
                "longest": round(longest),
                "mean": round(mean),
                "batches": number,
            }
        }


def _looking(put: Callable[[list[Copy]], None]) -> Callable[[Any], None]:
    tensor, quiet, copied = (
        need("torch", "Tensor"),
        need("torch._C", "DisableTorchFunction"),
        _copying(),
    )

    def look(batch: Any) -> None:
        """Copy the batch's tensors; runs no line of the user's, and keeps none of its things."""
        copies: list[Copy] = []
        left = MOST_BYTES
        try:
            with quiet():
                for each in _tensors(batch, tensor):
                    copy = copied(each, left)
                    if copy is not None:
                        copies.append(copy)
                        left -= len(copy[2])
            put(copies)
        except Exception as error:
            if not is_ours(error, __package__):
                raise

    hide(look, _tensors)
    return look


def _tensors(batch: Any, tensor: Any) -> list[Any]:
    """Return the plain tensors of a batch: in plain containers, and in attributes of others."""
    level, found = [batch], []
    for _ in range(DEPTH):
        deeper: list[Any] = []
        for thing in level:
            kind = type(thing)
            if kind is tensor:
                found.append(thing)
            elif is_a(kind, tuple):
                deeper.extend(islice(tuple.__iter__(thing), MOST_THINGS))
            elif kind is list:
                deeper.extend(islice(thing, MOST_THINGS))
            elif not is_a(kind, tensor):
                within = thing if kind is dict else attributes(thing)
                deeper.extend(islice(within.values(), MOST_THINGS))
        level = deeper[:MOST_THINGS]
    return found


def _copying() -> Callable[[Any, int], Copy | None]:
    ask, form_of = Getters(), of_c("shape").__get__
    place, is_whole, copy = of_c("data_ptr"), of_c("is_contiguous"), need("ctypes", "_string_at")

    def copied(tensor: Any, most: int) -> Copy | None:
        """Copy one in main memory that could be rows of samples; ``None``: another one."""
        form = tuple(form_of(tensor))
        if not 2 <= len(form) <= MOST_DIMENSIONS or form[0] < LEAST_ROWS or form[1] < LEAST_LENGTH:
            return None
        size = int(ask.size(tensor))
        number = size * int(ask.number(tensor))
        is_here = ask.device.__get__(tensor).type == "cpu" and is_whole(tensor)
        return (form, size, copy(place(tensor), number)) if is_here and 0 < number <= most else None

    hide(copied)
    return copied


def _lengths(copy: Copy) -> tuple[int, tuple[int, int, float]] | None:
    """Return the bytes, the length, and without padding the longest and the mean."""
    form, size, raw = copy
    rows, length = form[:2]
    step = len(raw) // rows
    unit = step // length
    cut = [raw[at : at + step] for at in range(0, len(raw), step)]
    if len(form) == MOST_DIMENSIONS - 1 and not _many_values(cut[:ROWS_OF_VALUES], size):
        return None
    kept = min((_kept(cut, unit, is_left=is_left) for is_left in (False, True)), key=sum)
    # Columns that are the same everywhere are no padding.
    longest = max(kept) // unit
    if not longest or len(set(kept)) == 1:
        return None
    return len(raw), (length, longest, sum(kept) / unit / rows)


def _many_values(rows: list[bytes], size: int) -> bool:
    apart = size * max(1, len(rows[0]) // size // VALUES_OF_ROW)
    values = {row[at : at + size] for row in rows for at in range(0, len(row), apart)}
    return len(values) >= VALUES


def _kept(rows: list[bytes], unit: int, *, is_left: bool) -> list[int]:
    """Return how many bytes of each row are left without what is the same up to its end."""
    ends = [row[:unit] if is_left else row[-unit:] for row in rows]
    pad = max(set(ends), key=ends.count)
    return [_without(row, pad, is_left=is_left) for row in rows]


def _without(row: bytes, pad: bytes, *, is_left: bool) -> int:
    low, high = 0, len(row) // len(pad)
    while low < high:
        kept = (low + high) // 2
        padded = row[: len(row) - kept * len(pad)] if is_left else row[kept * len(pad) :]
        if padded == pad * (len(padded) // len(pad)):
            high = kept
        else:
            low = kept + 1
    return low * len(pad)

"""The part ``padding``: how much of the batches is padding, by a look at one in many.

The hook of a loader copies what a batch holds in main memory, and its lengths are counted later, on
the agent's thread: until then nothing of the job's is kept alive.
"""

from __future__ import annotations

from collections import Counter, deque
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

    # Of a tensor: its shape, the bytes of an element, whether it holds fractions, and some rows.
    Copy = tuple[tuple[int, ...], int, bool, list[bytes]]
    # Of a batch: how many numbers are in tensors of each shape, and what was copied.
    Seen = tuple[dict[tuple[int, ...], int], list[Copy]]
    # The length of the rows, of the longest without the filling at its end, and the mean of these.
    Lengths = tuple[int, int, float]

# Seconds between two looks: few at first, so that a short visit sees some.
EARLY_SECONDS, SECONDS = 5, 60
EARLY_LOOKS = 6
# Looks that are remembered.
MOST_LOOKS = 32
# Tensors that are copied, and bytes of each, by whole rows from all over it: a copy holds Python's
# lock, for 0.1 ms in all.
MOST_TENSORS, MOST_BYTES, MOST_ROWS = 4, 1 << 18, 256
# How deep, and through how many things, it looks for tensors.
DEPTH, MOST_THINGS = 4, 32
# Samples in rows, their parts along the second dimension: fewer are channels or columns.
LEAST_ROWS, LEAST_LENGTH = 4, 16
MOST_DIMENSIONS = 3
# Masks and one-hot rows have two values; so many rows, and so much of each end, tell.
VALUES, ROWS_OF_VALUES, VALUES_OF_ROW = 3, 4, 64


class Padding(Part):
    """Asks for a look now and then, and counts what it brought."""

    name = "padding"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._seen: deque[Seen] = deque(maxlen=2)
        # Of each look, and how much of the batch is in such rows.
        self._looks: deque[tuple[int, int, float, float]] = deque(maxlen=MOST_LOOKS)
        self._number = self._rests = 0

    def begin(self) -> None:
        """Find what a look needs."""
        self._look = _looking(self._seen.append)
        self.hooks.add(batch_looks.clear)

    def second(self, _now: int) -> dict[str, int | None]:
        """Count what the last look brought, and ask for the next."""
        while self._seen:
            self._number += 1
            look = _counted(*self._seen.popleft())
            if look is not None:
                self._looks.append(look)
        self._rests -= 1
        if self._rests <= 0:
            self._rests = EARLY_SECONDS if self._number < EARLY_LOOKS else SECONDS
            batch_looks[LOOK] = self._look
        return {}

    def facts(self) -> dict[str, Any]:
        """Return the means of the looks."""
        number = len(self._looks)
        if not number:
            return {}
        length, longest, mean, part = (sum(each) / number for each in zip(*self._looks))
        return {
            "padding": {
                "length": round(length),
                "longest": round(longest),
                "mean": round(mean),
                "part": round(part, 2),
                "batches": number,
            }
        }


def _looking(put: Callable[[Seen], None]) -> Callable[[Any], None]:
    tensor, quiet = need("torch", "Tensor"), need("torch._C", "DisableTorchFunction")
    # Where there is none of this name the other one does not keep modes of the user's from seeing.
    need("torch._C", "DisableTorchFunctionSubclass")
    noted = _noting()

    def look(batch: Any) -> None:
        """Copy some of the batch; runs no line of the user's, and keeps none of its things."""
        copies: list[Copy] = []
        shapes: dict[tuple[int, ...], int] = {}
        try:
            with quiet():
                for each in _tensors(batch, tensor):
                    noted(each, shapes, copies)
        except Exception as error:
            # Another thread may fill a container meanwhile.
            if not is_ours(error, __package__):
                raise
        put((shapes, copies))

    hide(look, _tensors, is_a)
    return look


def _noting() -> Callable[[Any, dict[tuple[int, ...], int], list[Copy]], None]:
    ask, form_of, copied = Getters(), of_c("shape").__get__, _copying()

    def noted(tensor: Any, shapes: dict[tuple[int, ...], int], copies: list[Copy]) -> None:
        try:
            form = tuple(form_of(tensor))
            shapes[form] = shapes.get(form, 0) + int(ask.number(tensor))
            if len(copies) < MOST_TENSORS:
                copies.extend(copied(tensor, form))
        except Exception as error:
            # One that has no shape, or no place, is another kind of tensor.
            if not is_ours(error, __package__):
                raise

    hide(noted)
    return noted


def _tensors(batch: Any, tensor: Any) -> list[Any]:
    """Return the plain tensors of a batch: in plain containers, and in attributes of others."""
    level, found = [batch], []
    for _ in range(DEPTH):
        deeper: list[Any] = []
        for thing in level:
            kind, within = type(thing), None
            if kind is tensor:
                found.append(thing)
            elif is_a(kind, tuple):
                within = tuple.__iter__(thing)
            elif kind is list:
                within = iter(thing)
            elif not is_a(kind, tensor):
                names = thing if is_a(kind, dict) else attributes(thing)
                within = iter(dict.values(names))
            deeper.extend(islice(within or (), MOST_THINGS))
        level = deeper[:MOST_THINGS]
    return found


def _copying() -> Callable[[Any, tuple[int, ...]], list[Copy]]:
    ask, place, is_whole = Getters(), of_c("data_ptr"), of_c("is_contiguous")
    has_fractions, copy = of_c("is_floating_point"), need("ctypes", "_string_at")

    def copied(tensor: Any, form: tuple[int, ...]) -> list[Copy]:
        """Copy rows of one in main memory that could be samples; an empty list: another one."""
        if not 2 <= len(form) <= MOST_DIMENSIONS or not form[0] or form[1] < LEAST_LENGTH:
            return []
        if ask.device.__get__(tensor).type != "cpu":
            return []
        begin, fractions = place(tensor) if is_whole(tensor) else 0, has_fractions(tensor)
        size = int(ask.size(tensor))
        step = size * int(ask.number(tensor)) // form[0]
        # Pictures of one colour have rows, too, and masks; of sound these are numbers.
        if not begin or not step or (len(form) == MOST_DIMENSIONS and not fractions):
            return []
        number = min(form[0], MOST_ROWS, MOST_BYTES // step)
        if number < min(form[0], LEAST_ROWS):
            return []
        rows = [copy(begin + step * (form[0] * n // number), step) for n in range(number)]
        return [(form, size, fractions, rows)]

    hide(copied)
    return copied


def _counted(
    shapes: dict[tuple[int, ...], int], copies: list[Copy]
) -> tuple[int, int, float, float] | None:
    """Return the lengths of the rows that are most of a batch, and how much of it they are."""
    found: list[tuple[float, Lengths]] = []
    for copy in copies:
        lengths = _lengths(*copy)
        if lengths is not None:
            alike = sum(many for form, many in shapes.items() if form[:2] == copy[0][:2])
            found.append((alike / sum(shapes.values()), lengths))
    if not found:
        return None
    part, (length, longest, mean) = max(found)
    return length, longest, mean, part


def _lengths(
    form: tuple[int, ...], size: int, fractions: bool, rows: list[bytes]
) -> Lengths | None:
    length, step = form[1], len(rows[0])
    if len(form) < MOST_DIMENSIONS and not _many_values(rows[:ROWS_OF_VALUES], size):
        return None
    unit = step // length
    kept = min((_kept(rows, unit, is_left=is_left) for is_left in (False, True)), key=sum)
    longest = max(kept) // unit
    if not longest:
        return None
    is_alike, is_few = len(set(kept)) == 1, len(rows) < LEAST_ROWS
    if is_alike and longest >= length - 1:
        # Rows that all end with the same token are full.
        return length, length, length
    # Columns that are the same everywhere are no padding; of tokens one row tells.
    if fractions if is_few else is_alike:
        return None
    return length, longest, sum(kept) / unit / len(kept)


def _many_values(rows: list[bytes], size: int) -> bool:
    ends = [row[: VALUES_OF_ROW * size] + row[-VALUES_OF_ROW * size :] for row in rows]
    return (
        len({each[at : at + size] for each in ends for at in range(0, len(each), size)}) >= VALUES
    )


def _kept(rows: list[bytes], unit: int, *, is_left: bool) -> list[int]:
    """Return how many bytes of each row are left without the filling at its end."""
    ends = Counter(row[:unit] if is_left else row[-unit:] for row in rows)
    pad = max(ends, key=ends.__getitem__)
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

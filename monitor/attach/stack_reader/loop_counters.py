"""How far the loops of a job's functions have come, read from outside.

A loop over a range, a list, an enumeration or a generator keeps its place in an object, and that
object lies among what its function works with: its number grows by one each turn, whatever the
program and its framework are. Numbers in variables that count up are read as well. What is no
longer used there may be freed memory: a caller trusts only what grows steadily.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from whyidle.monitor.attach.stack_reader import layout as parts
from whyidle.monitor.attach.stack_reader.code_objects import CodeObjects, Place
from whyidle.monitor.attach.stack_reader.frames import Frame
from whyidle.monitor.attach.stack_reader.layout import Layout, Lines
from whyidle.monitor.attach.stack_reader.opening import Opened
from whyidle.monitor.attach.stack_reader.snapshot import Snapshot
from whyidle.monitor.attach.stack_reader.unreadable import Torn

# Of one function; most have fewer than 50.
MOST_SLOTS: Final = 200
# Of all functions of a stack.
MOST_OBJECTS: Final = 5_000
# Generators that feed each other, and iterators in a zip.
DEEPEST: Final = 4
MOST_TOGETHER: Final = 8
# Types that are asked for their name, and what is read of one.
MOST_TYPES: Final = 1_000
LONGEST_NAME: Final = 1 + max(map(len, parts.NAMED))
# An iterator is used by a loop and little else.
MOST_USERS: Final = 1000
_COUNTED: Final = (1 << 63) - 1
# Until 3.10 a frame is an object: where it says that its stack begins.
_OLD_STACK: Final = 64
_TAGS: Final = 7
_TOP: Final = 1 << 47
# What is read of an object: its header, and the words that may count.
_OBJECT: Final = struct.Struct("<QQqqq")
_HEADER: Final = 16
# Digits of a number have 30 bits; one of two counts far enough.
_DIGIT_BITS, _MOST_DIGITS = 30, 2


# The slots that lead to a counter, whether it is an iterator, and where it stands.
_Found: TypeAlias = tuple[tuple[int, ...], bool, int]


class Loop(NamedTuple):
    """What tells one counter of a stack from the others."""

    # From the outermost function in, then through generators.
    depth: int
    code: int
    slots: tuple[int, ...]
    is_iterator: bool


class Count(NamedTuple):
    """Where a counter stands, and the line at which its function is."""

    value: int
    place: Place


class LoopCounters:
    """Reads the counters of one thread's functions."""

    def __init__(self, opened: Opened, codes: CodeObjects) -> None:
        self._layout, self._codes = opened.layout, codes
        # Objects that may still be looked at.
        self._left = 0
        self._kinds = {address: name for name, address in opened.counts.items()}
        # Of types that are not exported: which words count; ``None``: none of them does.
        self._named: dict[int, tuple[int, int | None] | None] = {}

    def read(
        self, snapshot: Snapshot, frames: Sequence[tuple[Frame, Place]]
    ) -> Mapping[Loop, Count]:
        """Return the counters of these functions; they come innermost first, as they are walked."""
        found: dict[Loop, Count] = {}
        self._left = MOST_OBJECTS
        # The outermost first: there the loops are that last.
        for depth, (frame, place) in enumerate(reversed(frames)):
            mine = list(self._of_frame(snapshot, frame.address, frame.code, 0))
            try:
                still = self._unchanged(snapshot, frame) if mine else set()
            except Torn:
                continue
            for slots, is_iterator, value in mine:
                if slots[0] in still:
                    found[Loop(depth, frame.code, slots, is_iterator)] = Count(value, place)
        return found

    def _unchanged(self, snapshot: Snapshot, frame: Frame) -> set[int]:
        """Return the slots that point where they did: what others pointed to may be gone."""
        before = self._slots(snapshot, frame.address, frame.code)[1]
        raw = snapshot.anew(frame.address + self._layout.frame_locals, 8 * len(before))
        now = struct.unpack(f"<{len(before)}Q", raw)
        return {n for n, (a, b) in enumerate(zip(before, now, strict=True)) if a == b}

    def _of_frame(self, snapshot: Snapshot, frame: int, code: int, deep: int) -> Iterator[_Found]:
        try:
            variables, slots = self._slots(snapshot, frame, code)
        except Torn:
            return
        for number, pointer in enumerate(slots):
            for rest, is_iterator, value in self._of_object(snapshot, pointer & ~_TAGS, deep):
                # What a function is just working with is any number, and counts nothing.
                if is_iterator or rest or number < variables:
                    yield (number, *rest), is_iterator, value

    def _slots(self, snapshot: Snapshot, frame: int, code: int) -> tuple[int, tuple[int, ...]]:
        """Return how many variables a function has, and what these and its stack point to."""
        layout = self._layout
        if layout.lines is Lines.LOCATIONS:
            stack, _, variables = struct.unpack(
                "<3i", snapshot.part(code + layout.code_first_line - 4, 12)
            )
        else:
            # Between the variables and the stack lie cells; the frame says where that begins.
            variables = (snapshot.word(frame + _OLD_STACK) - frame - layout.frame_locals) // 8
            (stack,) = struct.unpack("<i", snapshot.part(code + layout.code_first_line - 8, 4))
        count = stack + variables
        if variables < 0 or stack < 0 or count > MOST_SLOTS:
            raise Torn("a function with so many variables makes no sense")
        raw = snapshot.part(frame + layout.frame_locals, 8 * count)
        return variables, struct.unpack(f"<{count}Q", raw)

    def _of_object(self, snapshot: Snapshot, address: int, deep: int) -> Iterator[_Found]:
        self._left -= 1
        if not address or address >= _TOP or deep > DEEPEST or self._left < 0:
            return
        try:
            users, kind, *words = _OBJECT.unpack_from(*snapshot.find(address, _OBJECT.size))
            name = self._kinds.get(kind)
            if name == parts.NUMBER:
                value = _number(self._layout, words)
                yield from () if value is None else (((), False, value),)
            # What frees an object writes over its first word.
            elif not 0 < users & _COUNTED < MOST_USERS:
                return
            elif name is not None:
                yield from self._of_iterator(snapshot, name, address, words, deep + 1)
            elif (place := self._by_name(snapshot, kind)) is not None:
                word, step = place
                if step is None or snapshot.word(address + _HEADER + 8 * step) == 1:
                    yield (), True, words[word]
        except Torn:
            return

    def _of_iterator(
        self, snapshot: Snapshot, name: str, address: int, words: list[int], deep: int
    ) -> Iterator[_Found]:
        if name == parts.GENERATOR:
            yield from self._of_generator(snapshot, address, deep)
        elif name == parts.ZIP:
            yield from self._of_zip(snapshot, words[1], deep)
        elif name == parts.RANGE and (left := self._layout.range_left) is not None:
            yield (), True, -words[left // 8 - 2]
        else:
            yield (), True, words[0]

    def _by_name(self, snapshot: Snapshot, kind: int) -> tuple[int, int | None] | None:
        """Return which words of an object of a type count; a type is asked for its name once."""
        if kind not in self._named and len(self._named) < MOST_TYPES:
            name = snapshot.part(snapshot.word(kind + parts.TYPE_NAME), LONGEST_NAME)
            self._named[kind] = parts.NAMED.get(name.partition(b"\0")[0])
        return self._named.get(kind)

    def _of_generator(self, snapshot: Snapshot, address: int, deep: int) -> Iterator[_Found]:
        layout = self._layout
        frame = address + layout.generator_frame
        if layout.lines is not Lines.LOCATIONS:
            frame = snapshot.word(frame)
        if frame:
            code = snapshot.word(frame + layout.frame_code) & ~_TAGS
            if self._codes.at(snapshot, code)[0] is not None:
                yield from self._of_frame(snapshot, frame, code, deep)

    def _of_zip(self, snapshot: Snapshot, iterators: int, deep: int) -> Iterator[_Found]:
        (count,) = struct.unpack("<q", snapshot.part(iterators + 16, 8))
        for number in range(min(max(count, 0), MOST_TOGETHER)):
            pointer = snapshot.word(iterators + 24 + 8 * number)
            for rest, is_iterator, value in self._of_object(snapshot, pointer, deep):
                yield (number, *rest), is_iterator, value


def _number(layout: Layout, words: list[int]) -> int | None:
    """Return a small number that is not negative."""
    size = words[0]
    if layout.range_left is not None:
        # Since 3.12: the sign in the lowest bits, above them how many digits.
        if size & 3 > 1:
            return None
        digits = size >> 3
    else:
        digits = size
    if not 0 <= digits <= _MOST_DIGITS:
        return None
    raw = words[1] & (1 << 64) - 1
    low, high = raw & (1 << 32) - 1, raw >> 32
    return (low, low | high << _DIGIT_BITS)[digits - 1] if digits else 0

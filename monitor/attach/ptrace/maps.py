"""The memory map of a process: /proc/PID/maps as values."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

PAGE = 4096
# The end of what a program of 64 bits may use without asking for more.
TOP = 0x7FFF_FFFF_F000
STACK = "[stack]"


class Mapping(NamedTuple):
    """One line."""

    start: int
    end: int
    rights: str
    offset: int
    path: str

    @property
    def size(self) -> int:
        """Return its length in bytes."""
        return self.end - self.start

    @property
    def runs(self) -> bool:
        """Tell whether code may run there."""
        return "x" in self.rights


def parse(text: str) -> tuple[Mapping, ...]:
    """Read the file's text."""
    # The kernel escapes a newline in a file's name; other line ends stay in it.
    return tuple(m for line in text.split("\n") if (m := _line(line)) is not None)


def _line(line: str) -> Mapping | None:
    words = line.split(None, 5)
    try:
        start, end = (int(word, 16) for word in words[0].split("-"))
        path = words[5] if len(words) > 5 else ""
        return Mapping(start, end, words[1], int(words[2], 16), path)
    except (IndexError, ValueError):
        return None


def at(maps: tuple[Mapping, ...], address: int) -> Mapping | None:
    """Return the mapping at an address."""
    return next((m for m in maps if m.start <= address < m.end), None)


def free_place(maps: tuple[Mapping, ...], size: int, distance: int) -> int | None:
    """Return where so many bytes are free: near where the kernel itself would map next.

    That is below the libraries, in the largest gap, at a distance from its end. Where the gap ends
    at the main thread's stack, which may still grow, its middle is taken.
    """
    gaps = [(b.start - a.end, a, b) for a, b in pairwise(maps) if b.end <= TOP]
    room, below, above = max(gaps, default=(0, None, None), key=lambda gap: gap[0])
    if below is None or above is None or room < 4 * (size + distance):
        return None
    end = above.start - distance if above.path != STACK else below.end + room // 2
    return (end - size) & -PAGE

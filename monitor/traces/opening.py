"""A trace file as a bounded stream of bytes, and what kind of file it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from whyidle.monitor.traces.model import Format

# Told now and then while a file is read: bytes of the file on disk used so far, and its size.
Progress = Callable[[int, int], None]


class Stream:
    """The decompressed bytes of a file, forward only."""

    position: int  # decompressed bytes handed out or skipped
    consumed: int  # bytes of the file on disk used so far

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end."""
        raise NotImplementedError

    def skip(self, size: int) -> None:
        """Leave out this many bytes."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Source:
    """A file whose kind is known."""

    path: Path
    format: Format
    compressed: bool
    size: int  # on disk

    def open(self) -> Stream:
        """Begin at the first byte; may be called again."""
        raise NotImplementedError


def identify(path: Path) -> Source:
    """Tell what a file is, or raise ``UsageProblem`` with a sentence that says what it looks like."""
    raise NotImplementedError

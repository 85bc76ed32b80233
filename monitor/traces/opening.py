"""A trace file as a bounded stream of bytes, and what kind of file it is."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import NotPermitted, Problem, UsageProblem
from whyidle.monitor.traces import file_types
from whyidle.monitor.traces.model import Format
from whyidle.monitor.traces.stream import GZIP, GzipStream, NotAFile, Stream, open_file

__all__ = ["Progress", "Source", "Stream", "identify", "show", "traces_in"]

# Called now and then while a file is read: bytes of the file on disk used so far, and its size.
Progress = Callable[[int, int], None]

_HEAD: Final = 64 << 10
# A folder may be a whole disk: how many of its entries are looked at, and how deep.
_ENTRIES: Final = 5_000
_DEPTH: Final = 8
_TRACES: Final = (".xplane.pb", ".xplane.pb.gz", ".json", ".json.gz", ".sqlite")


@dataclass(frozen=True, slots=True)
class Source:
    """A file whose kind is known."""

    path: Path
    format: Format
    compressed: bool
    size: int  # on disk

    def open(self) -> Stream:
        """Begin at the first byte; may be called again."""
        try:
            file, _ = open_file(self.path)
        except (OSError, ValueError, NotAFile) as error:
            raise _unopened(self.path, error) from error
        return GzipStream(file) if self.compressed else Stream(file)


def identify(path: Path) -> Source:
    """Return what a file is, or raise ``UsageProblem`` and say what it looks like."""
    name = show(path)
    try:
        file, size = open_file(path)
    except (OSError, ValueError, NotAFile) as error:
        raise _unopened(path, error) from error
    with Stream(file) as plain:
        head, damage = plain.read(_HEAD), plain.damage
    if damage:
        raise UsageProblem(f"{name}: {damage}.", "Copy it to a local disk and try again.")
    if not head:
        raise UsageProblem(f"{name} is empty.", "Was the job stopped before the trace was written?")
    compressed = head.startswith(GZIP)
    if compressed:
        head, damage = _inside(path)
    known = file_types.format_of(head, whole=len(head) < _HEAD and not damage)
    if known is None:
        what, step = file_types.describe(head, _suffix(path))
        inside = "gzip, and inside " if compressed else ""
        step = step.replace(file_types.FILE, name)
        raise UsageProblem(f"{name} is no trace that we read: it is {inside}{what}.", step)
    return Source(path, known, compressed, size)


def _inside(path: Path) -> tuple[bytes, str | None]:
    """Return the first bytes of what a gzip file holds, and why there are no more."""
    with Source(path, "kineto", compressed=True, size=0).open() as stream:
        head = stream.read(_HEAD)
    if head:
        return head, stream.damage
    why = stream.damage or "it holds nothing"
    raise UsageProblem(f"{show(path)} is a gzip file of no use: {why}.", "Copy or trace it again.")


def show(path: Path) -> str:
    """Return a path as a message may show it: a name may hold anything but a slash."""
    text = os.fsencode(path).decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def _unopened(path: Path, error: Exception) -> Problem:
    name = show(path)
    match error:
        case NotAFile() if str(error) == "folder":
            return _folder(path)
        case NotAFile():
            return UsageProblem(
                f"{name} is a {error}, not a file.", "Write the trace to a file, and name that."
            )
        case FileNotFoundError() | NotADirectoryError():
            return UsageProblem(
                f"There is no file {name}.", "Look where the job wrote it: ls -t | head"
            )
        case PermissionError():
            return NotPermitted(
                f"You may not read {name}.", "Ask its owner, or run this as that user."
            )
        case OSError():
            return UsageProblem(f"{name} cannot be opened: {error.strerror}.", "Check the name.")
        case _:
            return UsageProblem(f"{name} is no name that a file can have.", "Check the name.")


def _folder(path: Path) -> Problem:
    what = f"{show(path)} is a folder."
    newest = heapq.nlargest(1, traces_in(path))
    if not newest:
        return UsageProblem(what, "No trace was seen in it; name the file: *.xplane.pb, *.json.gz")
    return UsageProblem(what, f"The newest trace in it: monitor trace {show(Path(newest[0][1]))}")


def traces_in(folder: Path) -> Iterator[tuple[float, str]]:
    """Find what may be a trace by its name, with the time of its last change."""
    waiting, left = [(str(folder), 0)], _ENTRIES
    while waiting and left > 0:
        at, depth = waiting.pop()
        for entry in _entries(at, left):
            left -= 1
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False) and depth < _DEPTH:
                waiting.append((entry.path, depth + 1))
            elif entry.name.endswith(_TRACES) and entry.is_file():
                yield entry.stat().st_mtime, entry.path


def _entries(folder: str, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry, _ in zip(entries, range(most), strict=False)]
    except OSError:
        return []

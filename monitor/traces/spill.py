"""Rows that memory has no room for, in a temporary file: runs, each in the order of its starts."""

from __future__ import annotations

import os
import tempfile
import weakref
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.traces.model import Ints, Table

# So many rows stay in memory; a longer file goes to disk in runs of as many, and is read from there
# stretch by stretch. With this many the account of a file takes 300 MB.
MOST_ROWS: Final = 1_200_000
# Of so many rows the first start is kept in memory.
EACH: Final = 128
Records = NDArray[np.void]
_Kind = TypeVar("_Kind", bound=Table)
_Host = TypeVar("_Host", bound=Table)
_Work = TypeVar("_Work", bound=Table)


def _record_of(kind: type[Table], **more: type[np.generic]) -> np.dtype[np.void]:
    return np.dtype(list({**kind.columns(), **more}.items()))


def records(kind: np.dtype[np.void], table: Table, **more: NDArray[Any]) -> Records:
    """Return the rows of a table as records, in the order of their starts."""
    found = np.empty(len(table), kind)
    order = np.argsort(table.start, kind="stable")  # type: ignore[attr-defined]
    for name in table.columns():
        found[name] = getattr(table, name)[order]
    for name, column in more.items():
        found[name] = column[order]
    return found


class Runs:
    """Rows of one kind."""

    def __init__(self, file: int, kind: np.dtype[np.void]) -> None:
        self._file = file
        self.kind = kind
        self._runs: list[tuple[int, int, Ints]] = []

    def add(self, rows: Records) -> None:
        """Write a run."""
        if not len(rows):
            return
        at = os.fstat(self._file).st_size
        try:
            _write(self._file, rows.tobytes(), at)
        except OSError as error:
            folder = tempfile.gettempdir()
            raise StorageProblem(
                f"The file is too long for memory, and in {folder} there is no room for its rows:"
                f" {error.strerror}.",
                "Name a folder that has room: TMPDIR=/somewhere monitor trace FILE",
            ) from error
        self._runs.append((at, len(rows), rows["start"][::EACH].copy()))

    def starts(self) -> Ints:
        """Return when every so many rows begin, in order."""
        return np.sort(np.concatenate([np.zeros(0, np.int64), *(run[2] for run in self._runs)]))

    def between(self, start: int, end: int) -> Records:
        """Return the rows that start between two times, those of one run after the other."""
        found = [np.empty(0, self.kind)]
        for at, count, starts in self._runs:
            first = max(0, int(np.searchsorted(starts, start)) - 1) * EACH
            last = min(count, int(np.searchsorted(starts, end)) * EACH)
            if first < last:
                rows = self._read(at + first * self.kind.itemsize, last - first)
                a, b = np.searchsorted(rows["start"], (start, end))
                found.append(rows[a:b])
        return np.concatenate(found)

    def _read(self, at: int, count: int) -> Records:
        size, pieces = count * self.kind.itemsize, []
        while size and (piece := os.pread(self._file, size, at)):
            pieces.append(piece)
            at, size = at + len(piece), size - len(piece)
        return np.frombuffer(b"".join(pieces) if len(pieces) > 1 else pieces[0], self.kind)


def _write(file: int, data: bytes, at: int) -> None:
    left = memoryview(data)
    while left:
        done = os.pwrite(file, left, at)
        left, at = left[done:], at + done


class Spill:
    """The rows of one file; they are gone when this is."""

    def __init__(self, host: type[Table], work: type[Table]) -> None:
        with tempfile.TemporaryFile(prefix="whyidle-") as file:
            number = os.dup(file.fileno())
        weakref.finalize(self, os.close, number)
        self.host = Runs(number, _record_of(host))
        # With its place among the operations of the file.
        self.work = Runs(number, _record_of(work, place=np.int64))
        self._places = 0

    def take(self, host: Table, work: Table) -> None:
        """Write these rows."""
        places = np.arange(self._places, self._places + len(work))
        self._places += len(work)
        self.host.add(records(self.host.kind, host))
        self.work.add(records(self.work.kind, work, place=places))


def joined(kind: type[_Kind], parts: list[_Kind]) -> _Kind:
    """Make one table of many, which are let go: no file's columns are there three times."""
    if not parts:
        return kind.of()
    columns = {name: [getattr(part, name) for part in parts] for name in kind.columns()}
    parts.clear()
    return kind(**{name: np.concatenate(columns.pop(name)) for name in kind.columns()})


class Kept(Generic[_Host, _Work]):
    """The rows of a file as they are read: in memory, and on disk once they are too many."""

    def __init__(self, host: type[_Host], work: type[_Work]) -> None:
        self.host_kind, self.work_kind = host, work
        self.host: list[_Host] = []
        self.work: list[_Work] = []
        self.waiting = 0  # rows in memory
        self.spill: Spill | None = None
        # Where the rows of `work` stood among those of the file; None: in this order.
        self.places: Ints | None = None

    def make_room(self) -> None:
        """Write the rows to disk, and forget them, where they are too many."""
        if self.waiting >= (MOST_ROWS if self.spill is None else MOST_ROWS // 2):
            self.write(self.spill or Spill(self.host_kind, self.work_kind))

    def write(self, spill: Spill) -> None:
        """Write the rows to disk, and forget them."""
        self.spill = spill
        spill.take(joined(self.host_kind, self.host), joined(self.work_kind, self.work))
        self.waiting = 0

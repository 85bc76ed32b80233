"""The spool: one append-only file that survives a killed job with all that was written.

It must never cost the job anything: a full disk, a full spool or a broken device lose records.
These are counted, and the next try follows a second later.
"""

from __future__ import annotations

import os
from json import JSONEncoder

from .fds import Descriptor
from .wire import SPOOL_CAP, SPOOL_TRIM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .folder import Folder

# Reserved for the last record.
RESERVE = 4096
# A reader skips longer ones.
LONGEST_LINE = 60_000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC
_encode = JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Spool:
    """An open spool; used by one thread at a time."""

    __slots__ = ("_file", "_folder", "_identity", "_name", "_torn", "epoch", "lost", "size")

    def __init__(self, folder: Folder, name: str) -> None:
        folder.clear(name)
        self._folder = folder
        self._name = name
        self._file = Descriptor(os.open(name, _NEW, 0o600, dir_fd=folder.number))
        # The job's umask may have taken our own right to read away.
        os.fchmod(self._file.number, 0o600)
        self._identity = folder.identity(name)
        self._torn = False
        self.size = 0
        self.epoch = 0
        self.lost = 0

    def is_ours(self) -> bool:
        """Tell whether the descriptor still is the spool."""
        return self._file.is_ours()

    def write(self, records: Iterable[list[Any]], limit: int = SPOOL_CAP - RESERVE) -> None:
        """Append records in one write, as many as there is room for."""
        lines: list[bytes] = []
        left = limit - self.size - 1
        for record in records:
            line = _line(record)
            if line is None or len(line) > left:
                self.lost += 1
            else:
                lines.append(line)
                left -= len(line)
        if lines:
            self._append(lines)

    def write_last(self, record: list[Any]) -> None:
        """Append the last record, for which room is reserved."""
        self.write([record], SPOOL_CAP)

    def is_worth_emptying(self) -> bool:
        """Tell whether it is long enough to be emptied once it was read."""
        return self.size > SPOOL_TRIM

    def empty(self, first: list[list[Any]]) -> None:
        """Begin again at the start of the file."""
        if not self.is_ours():
            return
        try:
            os.ftruncate(self._file.number, 0)
        except OSError:
            return
        self.size = 0
        self.epoch += 1
        self._torn = False
        self.write(first)

    def remove(self) -> None:
        """Remove the file; a reader that has it open can still read it."""
        self._folder.remove(self._name, self._identity)
        self.close()

    def close(self) -> None:
        """Let go of the file and leave it."""
        self._file.close()

    def _append(self, lines: list[bytes]) -> None:
        # After a write that ended inside a line the next one begins on a new line: what a reader
        # has seen is never changed.
        batch = (b"\n" if self._torn else b"") + b"".join(lines)
        written = 0
        if self._file.is_ours():
            try:
                written = os.write(self._file.number, batch)
            except OSError:
                written = 0
        self.size += written
        if written:
            self._torn = batch[written - 1 : written] != b"\n"
        if written < len(batch):
            self.lost += batch.count(b"\n", written)


def _line(record: list[Any]) -> bytes | None:
    try:
        line = _encode(record).encode("ascii") + b"\n"
    except (TypeError, ValueError, RecursionError):
        return None
    return line if len(line) <= LONGEST_LINE else None

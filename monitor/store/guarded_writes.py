"""Writes in a transaction; on failure, make room on the disk, or report a sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from whyidle.monitor.store import connect
from whyidle.monitor.store.connect import BUSY_MS, transaction
from whyidle.monitor.store.disk_quota import DiskQuota
from whyidle.monitor.store.waiting import Waiting

# A tick waits only briefly for another process's lock: it joins the queue, and the next is on time.
TICK_BUSY_MS: Final = 50
_PASSING: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
}
_DEFECTS: Final = (
    OverflowError,
    TypeError,
    ValueError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
T = TypeVar("T")


class GuardedWrites:
    """One connection, and what last went wrong with it."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, room: DiskQuota, waiting: Waiting
    ) -> None:
        self.failure: str | None = None
        # Whether the last failure may pass by itself.
        self.passing = False
        # Called when the oldest samples have made room.
        self.made_room: Callable[[], None] = lambda: None
        self._connection = connection
        self._path = path
        self._disk = room
        self._waiting = waiting

    @contextmanager
    def patiently(self) -> Iterator[None]:
        """Wait longer for other processes' locks, for writes without a second chance."""
        self._wait_for_locks(BUSY_MS)
        try:
            yield
        finally:
            self._wait_for_locks(TICK_BUSY_MS)

    def safely(self, work: Callable[[], T]) -> T:
        """Write, or raise a sentence."""
        try:
            return self._write(work)
        except sqlite3.Error as error:
            raise connect.cannot_open(self._path, error) from error

    def quietly(self, work: Callable[[], object]) -> bool:
        """Write, or put the reason why not into ``failure``."""
        try:
            self._write(work)
        except _DEFECTS as error:
            # The data is at fault, not the disk: it would fail for ever, and block what follows.
            self._waiting.give_up()
            self.passing = False
            self.failure = f"A tick could not be stored and was left out ({error})."
            return False
        except sqlite3.Error as error:
            self.passing = connect.primary(error) in _PASSING
            self.failure = self._sentence(error)
            return False
        self.failure = None
        return True

    def _wait_for_locks(self, ms: int) -> None:
        # The connection may be closed already: the next write reports that.
        with suppress(sqlite3.Error):
            self._connection.execute(f"PRAGMA busy_timeout = {ms}")

    def _write(self, work: Callable[[], T]) -> T:
        try:
            with transaction(self._connection):
                return work()
        except sqlite3.Error as error:
            if not connect.is_full(error):
                raise
        if self._disk.make():
            self.made_room()
        with transaction(self._connection):
            return work()

    def _sentence(self, error: sqlite3.Error) -> str:
        code, queued = connect.primary(error), len(self._waiting.ticks)
        waiting = f"{queued} ticks wait in memory" if queued else "still recording"
        if code == sqlite3.SQLITE_FULL:
            return f"The disk under {self._path.parent} is full and nothing old is left; {waiting}."
        if connect.is_corrupt(error):
            return f"{self._path} is damaged ({error}); {waiting}. Start the recording again."
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return f"Another process holds {self._path} for long; {waiting}."
        return f"Cannot write {self._path} ({error}); {waiting}."

"""Room on the disk: a full disk, or our own size limit, turns the file into a ring buffer.

Without a free byte SQLite can neither delete nor checkpoint the log, since both write first. So a
small ballast file lies beside the database and is removed at that moment; then the oldest samples
make room, and the file may not grow until the disk has room again.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.store import timelines
from whyidle.monitor.store.connect import PAGE_SIZE, transaction
from whyidle.monitor.store.retention import delete_before
from whyidle.monitor.store.schema import LEVELS, RAW, Level
from whyidle.monitor.store.subjects import held, last, raw_edge

_BALLAST: Final = 4 << 20
# Shares of the disk, for disks that the usual sizes would fill.
_BALLAST_SHARE: Final = 1 / 16
_LOG_SHARE: Final = 1 / 16
_LOG_PAGES: Final = 1000
_FROZEN_LOG_PAGES: Final = 32
_EVICTED_SHARE: Final = 0.2
_WANTED_SHARE: Final = 0.1
_ROUNDS: Final = 8
_SPARE_PAGES: Final = 64
_FOLD_WAIT_MS: Final = 200
# The screen stops reporting it this long after room was last made.
_QUIET_MINUTES: Final = 10
_PRUNE: Final = "Delete what is not needed any more: monitor prune"


class DiskQuota:
    """Keeps the file within its size limit and the disk's free space."""

    def __init__(self, connection: sqlite3.Connection, path: Path, size_cap: int) -> None:
        self.evicted = 0
        self.trouble: str | None = None
        self._connection = connection
        self._folder = path.parent
        self._ballast = path.with_name(path.name + "-ballast")
        self._size_cap = size_cap
        self._frozen = False
        self._quiet_minutes = 0
        self._pragma("secure_delete = OFF")
        self._pragma("temp_store = MEMORY")
        self._thaw()

    def check(self) -> None:
        """Allow growth again once the disk has room; called each minute."""
        self._quiet_minutes += 1
        if not self._frozen and self._quiet_minutes > _QUIET_MINUTES:
            self.trouble = None
        with suppress(sqlite3.Error, OSError):
            if self._frozen and self._free() >= 4 * self._ballast_size():
                self.trouble = None
                self._thaw()

    def fold(self, wait_ms: int = 0) -> None:
        """Checkpoint the log into the file and free its space; readers may prevent it."""
        # While frozen the log keeps its space: other programs would take what it gave back.
        mode = "RESTART" if self._frozen else "TRUNCATE"
        usual_ms = self._pragma("busy_timeout")
        with suppress(sqlite3.Error):
            self._pragma(f"busy_timeout = {wait_ms}")
            self._pragma(f"wal_checkpoint({mode})")
        self._pragma(f"busy_timeout = {usual_ms}")

    def make(self) -> bool:
        """Make room; return whether something could be deleted."""
        disk = self._pragma("page_count") < self._pragma("max_page_count")
        before = self.evicted
        self._quiet_minutes = 0
        if disk:
            with suppress(OSError):
                self._ballast.unlink(missing_ok=True)
        self.fold(_FOLD_WAIT_MS)
        if disk:
            self._freeze()
        with suppress(sqlite3.Error):
            self._evict(_WANTED_SHARE * self._pragma("page_count"))
        self.fold(_FOLD_WAIT_MS)
        if self._frozen:
            self.trouble = f"The disk under {self._folder} is full: the oldest samples make room."
        else:
            size = f"{self._size_cap / (1 << 20):.0f} MB"
            self.trouble = f"The recordings fill their {size}: the oldest samples make room."
        return self.evicted > before

    def reserve(self, size: int) -> None:
        """Make room for something large, so that no tick has to; or raise why not.

        It uses only free disk space, once for the log and once for the file, and leaves twice the
        ballast to the ticks.
        """
        if self._free() < 2 * (size + self._ballast_size()):
            raise StorageProblem(f"The disk under {self._folder} is too full{_for(size)}.", _PRUNE)
        with transaction(self._connection):
            timelines.trim(self._connection, timelines.SHARE * self._size_cap - size)
        pages = (1 + _WANTED_SHARE) * size / self._pragma("page_size") + _SPARE_PAGES
        pages -= self._pragma("max_page_count") - self._pragma("page_count")
        if self._pragma("freelist_count") < pages:
            self._evict(pages)
        if self._pragma("freelist_count") < pages:
            raise StorageProblem(f"The recordings fill their size limit{_for(size)}.", _PRUNE)

    def _evict(self, pages: float) -> None:
        """Delete the oldest until this many pages are free."""
        most = timelines.SHARE * self._pragma("max_page_count") * self._pragma("page_size")
        with transaction(self._connection):
            trimmed = timelines.trim(self._connection, most)
        self.evicted += trimmed
        if trimmed and self._pragma("freelist_count") >= pages:
            return
        for turn in range(_ROUNDS):
            level = LEVELS[turn % len(LEVELS)]
            with transaction(self._connection):
                deleted = self._evict_level(level)
            self.evicted += deleted
            if self._pragma("freelist_count") >= pages:
                return

    def _evict_level(self, level: Level) -> int:
        edges = [e for scope in Scope for e in _edges(self._connection, scope, level)]
        if not edges:
            return 0
        oldest, newest = min(edges), max(edges)
        before = oldest + int((newest - oldest) * _EVICTED_SHARE) + level.width_ms
        # The newest rows always stay.
        if before > newest:
            return 0
        return sum(delete_before(self._connection, scope, level, before) for scope in Scope)

    def _freeze(self) -> None:
        self._frozen = True
        self._pragma(f"max_page_count = {self._pragma('page_count')}")
        self._pragma(f"wal_autocheckpoint = {_FROZEN_LOG_PAGES}")

    def _thaw(self) -> None:
        self._frozen = False
        page_size = self._pragma("page_size")
        self._pragma(f"max_page_count = {max(self._size_cap // page_size, 1)}")
        self._make_ballast()
        pages = int(self._disk() * _LOG_SHARE) // page_size
        self._pragma(f"wal_autocheckpoint = {min(_LOG_PAGES, max(pages, 16))}")

    def _make_ballast(self) -> None:
        try:
            descriptor = os.open(
                self._ballast, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
            )
        except OSError:
            return
        try:
            os.posix_fallocate(descriptor, 0, self._ballast_size())
        except OSError:
            self._ballast.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def _ballast_size(self) -> int:
        size = min(_BALLAST, int(self._disk() * _BALLAST_SHARE), self._size_cap // 16)
        return max(size, PAGE_SIZE)

    def _disk(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_blocks * found.f_frsize

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def _pragma(self, text: str) -> int:
        row = self._connection.execute(f"PRAGMA {text}").fetchone()
        return int(row[0]) if row else 0


def _edges(connection: sqlite3.Connection, scope: Scope, level: Level) -> list[int]:
    """Return the first and last moments of a table."""
    if level is RAW:
        found = [raw_edge(connection, scope, order) for order in ("ASC", "DESC")]
    else:
        some = held(connection, scope, level)
        found = [last(connection, scope, level, subject) for subject, _ in some]
        found += [oldest for _, oldest in some]
    return [moment for moment in found if moment is not None]


def _for(size: int) -> str:
    return f" for {max(size >> 20, 1)} MB more"

"""Open the file; every failure becomes a sentence."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.store import schema

PAGE_SIZE: Final = 4096
# For opening and closing; a recorder's ticks wait less.
BUSY_MS: Final = 5_000
# A reader that stays long keeps the log from being reset; this truncates it afterwards.
JOURNAL_LIMIT: Final = 4 << 20
# A check reads everything, 2 ms per MB: in a large file, check only the essential tables.
_CHECKED_WHOLE: Final = 64 << 20
_CHECKED_TABLES: Final = ("run", "gpu", "process", "gpu_process", "event")
_MAGIC: Final = b"SQLite format 3\0"
_ELSEWHERE: Final = "Choose another folder: WHYIDLE_STATE_DIR=/path/to/folder"

_CORRUPT: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def primary(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code of an error."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) or 0) & 0xFF


def is_full(error: sqlite3.Error) -> bool:
    """Tell whether the disk is full, or the size limit reached."""
    return primary(error) == sqlite3.SQLITE_FULL


def is_corrupt(error: sqlite3.Error) -> bool:
    """Tell whether the file itself is damaged."""
    return primary(error) in _CORRUPT


@dataclass(slots=True)
class Opened:
    """A connection for writing, and where a damaged file was moved to make way for it."""

    connection: sqlite3.Connection
    moved_aside: Path | None = None


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit on success, roll back on anything else."""
    # IMMEDIATE: a transaction that starts by reading cannot wait for another writer.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has already rolled back by itself after some errors, a full disk among them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def for_writing(path: Path) -> Opened:
    """Open or create the file; a damaged one is moved aside."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(path.parent):
            return _open_or_replace(path)
    except PermissionError as error:
        what = f"Cannot write recordings to {path.parent}: {error.strerror}."
        raise StorageProblem(what, _ELSEWHERE) from error
    except OSError as error:
        what = f"Cannot write recordings to {path}: {error.strerror}."
        raise StorageProblem(what, _ELSEWHERE) from error
    except sqlite3.Error as error:
        raise cannot_open(path, error) from error


def for_reading(path: Path) -> sqlite3.Connection:
    """Open an existing file so that nothing can be written."""
    check_exists(path)
    try:
        connection = _read_only(path)
        try:
            version = check_version(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        try:
            check_header(path)
        except OSError as why:
            what = f"Cannot read {path}: {why.strerror}."
            raise StorageProblem(what, "Read it as the user who recorded it.") from why
        raise cannot_open(path, error) from error
    if not version:
        # If the disk was full when the first recording began, the file has no tables.
        connection.close()
        raise _no_recordings(f"{path} is empty")
    return connection


def check_exists(path: Path) -> None:
    """Refuse a file that cannot hold any recording."""
    try:
        empty = not path.stat().st_size
    except FileNotFoundError:
        raise _no_recordings(f"{path} does not exist") from None
    except OSError:
        return
    if empty:
        raise _no_recordings(f"{path} is empty")


def _no_recordings(why: str) -> StorageProblem:
    what = f"There are no recordings: {why}."
    return StorageProblem(what, "Record a job first: monitor attach PID")


def check_header(path: Path) -> None:
    """Refuse a file that another program wrote.

    Call it only after SQLite has refused the file: closing a file drops all locks of this process
    on it, including those with which SQLite guards the log of another connection.
    """
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if head and head != _MAGIC:
        what = f"{path} is not a SQLite database."
        raise StorageProblem(what, "Move that file away, or set WHYIDLE_STATE_DIR.")


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the file's schema version; refuse a newer one, or another program's file."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != schema.APPLICATION_ID and tables:
        what = f"{path} is a SQLite database of another program."
        raise StorageProblem(what, "Move that file away, or set WHYIDLE_STATE_DIR.")
    if version > schema.VERSION:
        what = (
            f"{path} was written by a newer whyidle"
            f" (schema {version}; this one knows {schema.VERSION})."
        )
        raise StorageProblem(what, "Upgrade this whyidle, or set WHYIDLE_STATE_DIR.")
    return version


def cannot_open(path: Path, error: sqlite3.Error) -> StorageProblem:
    """Put SQLite's error into a sentence."""
    code = primary(error)
    if code in _CORRUPT:
        return StorageProblem(
            f"{path} is damaged: {error}.",
            "Start a recording: it moves the file aside and begins a new one.",
        )
    if code == sqlite3.SQLITE_FULL:
        return StorageProblem(f"The disk under {path.parent} is full.", _ELSEWHERE)
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StorageProblem(
            f"Another process holds {path} for too long.", "Try again in a moment."
        )
    return StorageProblem(f"Cannot open {path}: {error}.", _ELSEWHERE)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    # Two recorders starting together must not both move a damaged file aside.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_or_replace(path: Path) -> Opened:
    try:
        return Opened(_connect(path))
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
    aside = _move_aside(path)
    return Opened(_connect(path), aside)


def _connect(path: Path) -> sqlite3.Connection:
    _make(path)
    connection = _connection(f"{path.absolute().as_uri()}?mode=rw")
    try:
        _prepare(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        if is_corrupt(error):
            check_header(path)
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Create the file if missing; never open an existing one, see ``check_header``."""
    if path.is_symlink():
        # A link would let somebody else choose which file we write to.
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    with contextlib.suppress(FileExistsError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o600))


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if not path.stat().st_size:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    version = check_version(connection, path)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        what = f"The file system under {path.parent} cannot hold a database with a write-ahead log."
        raise StorageProblem(what, _ELSEWHERE)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}")
    with transaction(connection):
        if version:
            schema.upgrade(connection, version)
        else:
            schema.create(connection)
    _check(connection, path)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    small = path.stat().st_size <= _CHECKED_WHOLE
    for part in ("1",) if small else _CHECKED_TABLES:
        damage = connection.execute(f"PRAGMA quick_check({part})").fetchone()[0]
        if damage != "ok":
            error = sqlite3.DatabaseError(damage)
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error


def _move_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def _read_only(path: Path) -> sqlite3.Connection:
    address = path.absolute().as_uri()
    try:
        return _try(f"{address}?mode=ro")
    except sqlite3.OperationalError:
        # In a read-only folder SQLite cannot create the log's index. Without a log the file itself
        # is complete, and nobody can be writing to it.
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        return _try(f"{address}?immutable=1")


def _connection(address: str) -> sqlite3.Connection:
    # We begin transactions ourselves; a monitor may open here and record from another thread.
    return sqlite3.connect(
        address, uri=True, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False
    )


def _try(address: str) -> sqlite3.Connection:
    connection = _connection(address)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection

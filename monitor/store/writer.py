"""The recorder's end of the store: one transaction per tick, and never an exception from it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

from whyidle.monitor.errors import StorageProblem
from whyidle.monitor.metrics import Scope
from whyidle.monitor.reading import Tick
from whyidle.monitor.store import connect, recovery, retention, rollup, schema
from whyidle.monitor.store.connect import transaction
from whyidle.monitor.store.records import NewRun
from whyidle.monitor.store.room import Room
from whyidle.monitor.store.rows import Batch, Recording

SIZE_CAP: Final = 600 << 20
# Ten minutes at 1 Hz: what a disk that is full for a while may cost in memory is bounded.
QUEUE_TICKS: Final = 600
_HOUSEKEEPING_S: Final = 60.0
# A ring makes room again and again; that it is one need not be written each time.
_TOLD_AGAIN_MS: Final = 3_600_000
_NEW_RUN: Final = tuple(f.name for f in fields(NewRun))
_DEFECTS: Final = (
    OverflowError,
    TypeError,
    ValueError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
T = TypeVar("T")


class Writer:
    """Writes recordings. One thread at a time; any number of processes."""

    def __init__(
        self,
        path: Path,
        opened: connect.Opened,
        size_cap: int,
        now: Callable[[], float],
    ) -> None:
        self.path = path
        self.moved_aside = opened.moved_aside
        self.dropped = 0
        self._connection = opened.connection
        self._now = now
        self._room = Room(opened.connection, path, size_cap)
        self._recordings: dict[int, Recording] = {}
        self._queue: deque[tuple[int, Tick]] = deque()
        self._failure: str | None = None
        self._housekeeping_at = 0.0
        self._told_full_ms = -_TOLD_AGAIN_MS
        self._inode = path.stat().st_ino
        self._lost = False

    @classmethod
    def open(
        cls, path: Path, *, size_cap: int = SIZE_CAP, now: Callable[[], float] = time.time
    ) -> Writer:
        """Open or create the file. Every failure is a ``StorageProblem``."""
        opened = connect.for_writing(path)
        writer = cls(path, opened, size_cap, now)
        try:
            writer._safely(lambda: recovery.recover(opened.connection))
        except BaseException:
            opened.connection.close()
            raise
        return writer

    @property
    def trouble(self) -> str | None:
        """A sentence for the screen when not everything goes well."""
        if self._lost:
            return f"{self.path} was deleted or replaced; start the recording again."
        if self._failure:
            return self._failure
        if self._room.trouble:
            return self._room.trouble
        if self.moved_aside:
            return f"The recordings were damaged; they now lie in {self.moved_aside}."
        return None

    @property
    def evicted(self) -> int:
        """Rows that had to make room before their time."""
        return self._room.evicted

    @property
    def queued(self) -> int:
        """Ticks that wait in memory for the disk."""
        return len(self._queue)

    # Runs and their subjects ---------------------------------------------------------------------
    def begin_run(self, new: NewRun) -> int:
        """Begin a recording; returns its id."""
        run = self._insert("run", {name: getattr(new, name) for name in _NEW_RUN})
        self._recordings[run] = Recording(run)
        return run

    def describe_run(self, run: int, **columns: object) -> None:
        """Set columns of a run that were found out later."""
        self._update("run", run, columns)

    def add_gpu(
        self,
        run: int,
        *,
        idx: str,
        uuid: str | None = None,
        name: str | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> int:
        """Add a GPU to a run; returns the subject of its samples."""
        return self._insert(
            "gpu", {"run": run, "idx": idx, "uuid": uuid, "name": name, "info": info}
        )

    def add_process(  # noqa: PLR0913  the columns of a row, by name
        self,
        run: int,
        *,
        pid: int,
        start_ticks: int,
        first_ms: int | None = None,
        parent_pid: int | None = None,
        name: str | None = None,
        command: str | None = None,
        rank: int | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> int:
        """Add a process to a run, or find it again; returns the subject of its samples."""
        first = int(self._now() * 1000) if first_ms is None else first_ms
        values = {
            "run": run, "pid": pid, "start_ticks": start_ticks, "parent_pid": parent_pid,
            "name": name, "command": command, "first_ms": first, "last_ms": first, "rank": rank,
            "info": info,
        }  # fmt: skip
        return self._insert("process", values, "run, pid, start_ticks")

    def describe_process(self, process: int, **columns: object) -> None:
        """Set columns of a process: its rank, or when it was last seen."""
        self._update("process", process, columns)

    def add_gpu_process(self, gpu: int, process: int) -> int:
        """Join a process and a GPU, or find them joined; returns the subject of the samples."""
        return self._insert("gpu_process", {"gpu": gpu, "process": process}, "gpu, process")

    def event(  # noqa: PLR0913  the columns of a row, by name
        self,
        run: int,
        kind: str,
        text: str,
        *,
        severity: str = "info",
        ts_ms: int | None = None,
        scope: Scope | None = None,
        subject: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> bool:
        """Record that something happened. Like a tick it fails in silence: see ``trouble``."""
        values = {
            "run": run, "ts_ms": int(self._now() * 1000) if ts_ms is None else ts_ms,
            "kind": kind, "severity": severity, "scope": scope, "subject": subject, "text": text,
            "data": data,
        }  # fmt: skip
        return self._quietly(lambda: self._put("event", values, None))

    def end_run(self, run: int, reason: str, exit_code: int | None = None) -> bool:
        """End a recording; a failure shows in ``trouble``, and the next start repairs it."""
        self._flush()
        ended = int(self._now() * 1000)
        recording = self._recordings.get(run)
        if recording:
            # No row may lie after the end, whatever the clock did.
            ended = max(ended, recording.newest_ms)

        def end() -> None:
            self._connection.execute(
                "UPDATE run SET ended_ms = ?, end_reason = ?, exit_code = ? WHERE id = ?",
                (ended, reason, exit_code, run),
            )

        def roll_up_and_end() -> None:
            if recording:
                rollup.roll_up(self._connection, recording, None)
            end()

        # On a disk without any room the end itself, which only changes a row, may still fit.
        done = self._quietly(roll_up_and_end) or self._quietly(end)
        # Ticks that still wait for the disk need their recording once more, at close.
        if done and not any(waiting == run for waiting, _ in self._queue):
            self._recordings.pop(run, None)
        return done

    # Ticks ---------------------------------------------------------------------------------------
    def append(self, run: int, tick: Tick) -> bool:
        """Store a tick. ``True``: it is in the file. ``False``: it waits, see ``trouble``."""
        return self.append_many(run, (tick,))

    def append_many(self, run: int, ticks: Sequence[Tick]) -> bool:
        """Store some ticks in one transaction."""
        self._recordings.setdefault(run, Recording(run))
        self._queue.extend((run, tick) for tick in ticks)
        return self._flush()

    def maintain(self, now: float | None = None) -> None:
        """Roll up, clean up, and cut the log back when due; called at every tick."""
        now = self._now() if now is None else now
        now_ms = int(now * 1000)
        for recording in self._recordings.values():
            if rollup.due(recording, now_ms):
                self._roll_up(recording, now_ms)
        if now - self._housekeeping_at >= _HOUSEKEEPING_S or now < self._housekeeping_at:
            self._housekeeping_at = now
            self._quietly(lambda: retention.expire(self._connection, now_ms))
            self._room.check()
            with suppress(sqlite3.Error):
                self._room.fold()
            self._lost = not self._still_there()

    def close(self) -> None:
        """Roll up to the end and fold the log into the file."""
        self._flush()
        for recording in self._recordings.values():
            self._roll_up(recording, None)
        with suppress(sqlite3.Error):
            self._room.fold()
            self._connection.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside --------------------------------------------------------------------------------------
    def _roll_up(self, recording: Recording, until_ms: int | None) -> None:
        left = list(recording.pending)

        def work() -> None:
            left[:] = rollup.roll_up(self._connection, recording, until_ms)

        if self._quietly(work):
            recording.pending = left

    def _flush(self) -> bool:
        if not self._queue:
            return True
        ticks: dict[int, list[Tick]] = {}
        for run, tick in self._queue:
            ticks.setdefault(run, []).append(tick)
        batches = [Batch(self._recordings[run], some) for run, some in ticks.items()]

        def write() -> None:
            for batch in batches:
                batch.write(self._connection)

        if not self._quietly(write):
            while len(self._queue) > QUEUE_TICKS:
                self._queue.popleft()
                self.dropped += 1
            return False
        self._queue.clear()
        for batch in batches:
            batch.committed()
        return True

    def _insert(self, table: str, values: Mapping[str, object], unique: str | None = None) -> int:
        def put() -> int:
            row = self._put(table, values, unique)
            if row >= schema.SUBJECTS:
                what = f"{self.path} holds as many rows of '{table}' as it can."
                raise StorageProblem(what, "Set another folder: WHYIDLE_STATE_DIR=/path/to/folder")
            return row

        return self._safely(put)

    def _put(self, table: str, values: Mapping[str, object], unique: str | None) -> int:
        # The idle update makes RETURNING give the id of a row that was there already.
        again = f" ON CONFLICT({unique}) DO UPDATE SET id = id" if unique else ""
        marks = ", ".join("?" * len(values))
        row = self._connection.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks}){again} RETURNING id",  # noqa: S608
            [_plain(value) for value in values.values()],
        ).fetchall()[0]
        return int(row[0])

    def _update(self, table: str, row: int, values: Mapping[str, object]) -> None:
        marks = ", ".join(f"{name} = ?" for name in values)
        statement = f"UPDATE {table} SET {marks} WHERE id = ?"  # noqa: S608
        arguments = [*map(_plain, values.values()), row]
        self._quietly(lambda: self._connection.execute(statement, arguments))

    def _safely(self, work: Callable[[], T]) -> T:
        """Write, or raise a sentence."""
        try:
            return self._write(work)
        except sqlite3.Error as error:
            raise connect.cannot_open(self.path, error) from error

    def _quietly(self, work: Callable[[], object]) -> bool:
        """Write, or say in ``trouble`` why not."""
        try:
            self._write(work)
        except _DEFECTS as error:
            # Not the disk, but what we gave it: it would fail for ever, and all behind it.
            self.dropped += len(self._queue)
            self._queue.clear()
            self._failure = f"A tick could not be stored and was left out ({error})."
            return False
        except sqlite3.Error as error:
            self._failure = self._sentence(error)
            return False
        self._failure = None
        return True

    def _write(self, work: Callable[[], T]) -> T:
        try:
            with transaction(self._connection):
                return work()
        except sqlite3.Error as error:
            if not connect.is_full(error):
                raise
        if self._room.make():
            self._report_full()
        with transaction(self._connection):
            return work()

    def _still_there(self) -> bool:
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def _report_full(self) -> None:
        now_ms = int(self._now() * 1000)
        if now_ms - self._told_full_ms < _TOLD_AGAIN_MS:
            return
        self._told_full_ms = now_ms
        data = _plain({"evicted": self._room.evicted})
        rows = [(run, now_ms, self._room.trouble, data) for run in self._recordings]
        # The event is worth less than the ticks: it may fail.
        with suppress(sqlite3.Error), transaction(self._connection):
            self._connection.executemany(
                "INSERT INTO event (run, ts_ms, kind, severity, text, data)"
                " VALUES (?, ?, 'disk_full', 'medium', ?, ?)",
                rows,
            )

    def _sentence(self, error: sqlite3.Error) -> str:
        code = connect.primary(error)
        waiting = f"{len(self._queue)} ticks wait in memory" if self._queue else "still recording"
        if code == sqlite3.SQLITE_FULL:
            return f"The disk under {self.path.parent} is full and nothing old is left; {waiting}."
        if connect.is_corrupt(error):
            return f"{self.path} is damaged ({error}); {waiting}. Start the recording again."
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return f"Another process holds {self.path} for long; {waiting}."
        return f"Cannot write {self.path} ({error}); {waiting}."


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, Mapping) else value

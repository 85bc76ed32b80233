"""The recorder's side of the store: one transaction per tick, which never raises."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.reading import Tick
from whyidle.monitor.store import connect, recovery, rollup, schema
from whyidle.monitor.store.connect import transaction
from whyidle.monitor.store.disk_quota import DiskQuota
from whyidle.monitor.store.guarded_writes import GuardedWrites
from whyidle.monitor.store.records import NewRun, check_label
from whyidle.monitor.store.retention import Retention
from whyidle.monitor.store.rows import Batch, Recording, recall
from whyidle.monitor.store.waiting import Waiting

SIZE_CAP: Final = 600 << 20
_HOUSEKEEPING_S: Final = 60.0
# A ring makes room again and again; one event about it now and then is enough.
_REPORT_AGAIN_MS: Final = 3_600_000
_NEW_RUN: Final = tuple(f.name for f in fields(NewRun))


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
        self._connection = opened.connection
        self._now = now
        self._waiting = Waiting()
        self._disk = DiskQuota(opened.connection, path, size_cap)
        self._writes = GuardedWrites(opened.connection, path, self._disk, self._waiting)
        self._writes.made_room = self._report_full
        self._retention = Retention()
        self._recordings: dict[int, Recording] = {}
        # How far the clock has leapt ahead since the start: data does not age by that.
        self.leapt_ms = 0
        self._housekeeping_at = 0.0
        self._reported_full_ms = -_REPORT_AGAIN_MS
        self._inode = path.stat().st_ino
        self._lost = False

    @classmethod
    def open(
        cls, path: Path, *, size_cap: int = SIZE_CAP, now: Callable[[], float] = time.time
    ) -> Writer:
        """Open or create the file. Every failure raises a ``StorageProblem``."""
        opened = connect.for_writing(path)
        try:
            writer = cls(path, opened, size_cap, now)
            with writer._writes.patiently():
                writer._writes.safely(lambda: recovery.recover(opened.connection))
        except BaseException:
            opened.connection.close()
            raise
        return writer

    @property
    def trouble(self) -> str | None:
        """A sentence for the screen if something is wrong."""
        if self._lost:
            return f"{self.path} was deleted or replaced; start the recording again."
        if self._writes.failure:
            return self._writes.failure
        if self._disk.trouble:
            return self._disk.trouble
        if self.moved_aside:
            return f"The recordings were damaged; they now lie in {self.moved_aside}."
        return None

    @property
    def evicted(self) -> int:
        """Rows that had to make room before their time."""
        return self._disk.evicted

    @property
    def queued(self) -> int:
        """Ticks that wait in memory for the disk."""
        return len(self._waiting.ticks)

    @property
    def dropped(self) -> int:
        """Ticks that were lost."""
        return self._waiting.dropped

    # Runs and their subjects ---------------------------------------------------------------------
    def begin_run(self, new: NewRun) -> int:
        """Begin a recording; return its id. An invalid label raises a ``UsageProblem``."""
        check_label(new.label)
        with self._writes.patiently():
            run = self._insert("run", {name: getattr(new, name) for name in _NEW_RUN})
        self._recordings[run] = Recording(run)
        return run

    def describe_run(self, run: int, **columns: object) -> None:
        """Set columns of a run that became known later."""
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
        """Add a GPU to a run; return the subject of its samples."""
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
        """Add a process to a run, or find it; return the subject of its samples."""
        first = int(self._now() * 1000) if first_ms is None else first_ms
        values = {
            "run": run, "pid": pid, "start_ticks": start_ticks, "parent_pid": parent_pid,
            "name": name, "command": command, "first_ms": first, "last_ms": first, "rank": rank,
            "info": info,
        }  # fmt: skip
        return self._insert("process", values, "run, pid, start_ticks")

    def add_gpu_process(self, gpu: int, process: int) -> int:
        """Join a process and a GPU, or find the pair; return the subject of its samples."""
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
        """Record an event. Like a tick it fails silently, and may wait in memory."""
        values = {
            "run": run, "ts_ms": int(self._now() * 1000) if ts_ms is None else ts_ms,
            "kind": kind, "severity": severity, "scope": scope, "subject": subject, "text": text,
            "data": data,
        }  # fmt: skip
        statement = f"INSERT INTO event ({', '.join(values)}) VALUES ({_marks(values)})"  # noqa: S608
        return self._or_wait(statement, [_plain(value) for value in values.values()])

    def finding(self, run: int, ts_ms: int, rule: str, severity: str, data: object) -> bool:
        """Record a rule's finding, or its end; fails like an event."""
        values = (run, ts_ms, rule, severity, _plain(data))
        statement = "INSERT INTO finding (run, ts_ms, rule, severity, data) VALUES (?, ?, ?, ?, ?)"
        return self._or_wait(statement, values)

    def end_run(self, run: int, reason: str, exit_code: int | None = None) -> bool:
        """End a recording; ``trouble`` shows a failure, and the next start repairs it."""
        with self._writes.patiently():
            return self._end_run(run, reason, exit_code)

    # Ticks ---------------------------------------------------------------------------------------
    def append(self, run: int, tick: Tick) -> bool:
        """Store a tick; return whether it is in the file. If not it waits, see ``trouble``."""
        return self.append_many(run, (tick,))

    def append_many(self, run: int, ticks: Sequence[Tick]) -> bool:
        """Store ticks in one transaction."""
        self._recordings.setdefault(run, Recording(run))
        self._waiting.add(run, ticks)
        return self._flush()

    def maintain(self, now: float | None = None) -> None:
        """Roll up, clean up, and truncate the log when due; called at every tick."""
        now = self._now() if now is None else now
        for recording in self._recordings.values():
            if rollup.due(recording):
                self._roll_up(recording, recording.newest_ms)
        if now - self._housekeeping_at >= _HOUSEKEEPING_S or now < self._housekeeping_at:
            self._housekeeping_at = now
            self._keep_house()

    def close(self) -> None:
        """Roll up to the end and checkpoint the log into the file."""
        with self._writes.patiently():
            self._flush()
            for recording in self._recordings.values():
                self._roll_up(recording, None)
                self._keep_last(recording)
        with suppress(sqlite3.Error):
            self._disk.fold()
            self._connection.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside --------------------------------------------------------------------------------------
    def _end_run(self, run: int, reason: str, exit_code: int | None) -> bool:
        self._flush()
        ended = int(self._now() * 1000)
        recording = self._recordings.get(run)
        if recording:
            # No row may be later than the end, whatever the clock did.
            ended = max(ended, recording.newest_ms)

        def end() -> None:
            self._connection.execute(
                "UPDATE run SET ended_ms = ?, end_reason = ?, exit_code = ? WHERE id = ?",
                (ended, reason, exit_code, run),
            )

        def roll_up_and_end() -> None:
            if recording:
                rollup.roll_up(self._connection, recording, None)
                recording.keep_last(self._connection)
            end()

        # On a full disk the end itself, which only changes a row, may still fit.
        done = self._writes.quietly(roll_up_and_end) or self._writes.quietly(end)
        # Ticks that still wait for the disk need their recording again, at close.
        if done and not self._waiting.holds(run):
            self._recordings.pop(run, None)
        return done

    def _keep_house(self) -> None:
        for recording in self._recordings.values():
            if self._keep_last(recording):
                recording.forget()
        # Age is measured by the ticks, less the leaps of their clock: a wall clock set ahead by a
        # day would delete what was recorded an hour ago.
        newest_ms = max((r.newest_ms for r in self._recordings.values()), default=0)
        newest_ms -= self.leapt_ms
        self._writes.quietly(lambda: self._retention.expire(self._connection, newest_ms))
        self._disk.check()
        with suppress(sqlite3.Error):
            self._disk.fold()
        self._lost = not self._still_there()

    def _keep_last(self, recording: Recording) -> bool:
        if not self._writes.quietly(partial(recording.keep_last, self._connection)):
            return False
        recording.kept_ms = recording.newest_ms
        return True

    def _roll_up(self, recording: Recording, until_ms: int | None) -> None:
        left = list(recording.pending)

        def work() -> None:
            left[:] = rollup.roll_up(self._connection, recording, until_ms)

        if self._writes.quietly(work):
            recording.pending = left

    def _flush(self) -> bool:
        if not self._waiting:
            return True
        batches: list[Batch] = []

        def write() -> None:
            batches.clear()
            for statement, arguments in self._waiting.statements:
                self._connection.execute(statement, arguments)
            for run, ticks in self._waiting.by_run().items():
                recall(self._connection, self._recordings[run], ticks)
                batches.append(Batch(self._recordings[run], ticks))
                batches[-1].write(self._connection)

        if not self._writes.quietly(write):
            self._waiting.trim()
            if not self._writes.passing:
                # One of these may be the cause: the ticks must not wait for it for ever.
                self._waiting.statements.clear()
            return False
        self._waiting.clear()
        for batch in batches:
            batch.committed()
        return True

    def _or_wait(self, statement: str, arguments: Sequence[object]) -> bool:
        """Write a row, or queue it among the ticks until the disk or a lock is free."""
        # Queued writes come first: two changes of a row must stay in order.
        clear = not self._waiting.statements or self._flush()
        if clear and self._writes.quietly(lambda: self._connection.execute(statement, arguments)):
            return True
        if self._writes.passing:
            self._waiting.statements.append((statement, arguments))
        return False

    def _insert(self, table: str, values: Mapping[str, object], unique: str | None = None) -> int:
        # The no-op update makes RETURNING give the id of an existing row.
        again = f" ON CONFLICT({unique}) DO UPDATE SET id = id" if unique else ""
        statement = (
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({_marks(values)}){again}"  # noqa: S608
            " RETURNING id"
        )
        arguments = [_plain(value) for value in values.values()]

        def put() -> int:
            row = int(self._connection.execute(statement, arguments).fetchall()[0][0])
            if row >= schema.SUBJECTS:
                what = f"{self.path} holds as many rows of '{table}' as it can."
                raise StorageProblem(what, "Set another folder: WHYIDLE_STATE_DIR=/path/to/folder")
            return row

        return self._writes.safely(put)

    def _update(self, table: str, row: int, values: Mapping[str, object]) -> None:
        marks = ", ".join(f"{name} = ?" for name in values)
        statement = f"UPDATE {table} SET {marks} WHERE id = ?"  # noqa: S608
        self._or_wait(statement, [*map(_plain, values.values()), row])

    def _still_there(self) -> bool:
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def _report_full(self) -> None:
        now_ms = int(self._now() * 1000)
        if now_ms - self._reported_full_ms < _REPORT_AGAIN_MS:
            return
        self._reported_full_ms = now_ms
        data = _plain({"evicted": self._disk.evicted})
        rows = [(run, now_ms, self._disk.trouble, data) for run in self._recordings]
        # The event matters less than the ticks: it may fail.
        with suppress(sqlite3.Error), transaction(self._connection):
            self._connection.executemany(
                "INSERT INTO event (run, ts_ms, kind, severity, text, data)"
                " VALUES (?, ?, 'disk_full', 'medium', ?, ?)",
                rows,
            )


def _marks(values: Mapping[str, object]) -> str:
    return ", ".join("?" * len(values))


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, Mapping) else value

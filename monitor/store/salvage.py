"""Copy the readable part of a damaged file by key range: a bad page costs only its own rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.store import connect, recovery, timelines
from whyidle.monitor.store.connect import transaction
from whyidle.monitor.store.schema import LEVELS, RAW, SUBJECT_BITS, Level

# Keyed by id; tables that others refer to come first.
_BY_ID: Final = (
    "run", "gpu", "process", "gpu_process", "event", "finding", "trace", "trace_block",
)  # fmt: skip
# The first column of their key.
_BY_OWNER: Final = {
    "unknown": "run", "step": "run", "counter": "run",
    "trace_device": "trace", "trace_slice": "trace", "trace_kernel": "trace", "trace_step": "trace",
}  # fmt: skip
# The table that holds a scope's subjects.
_SUBJECT_TABLE: Final = {
    Scope.GPU: "gpu",
    Scope.GPU_PROCESS: "gpu_process",
    Scope.PROCESS: "process",
    Scope.JOB: "run",
    Scope.HOST: "run",
    Scope.MONITOR: "run",
}
# If the root of a B-tree is bad every range fails: do not try them all.
_MOST_FAILURES: Final = 100_000
_SUBJECTS_GUESSED: Final = 64


def salvage(damaged: Path, into: Path) -> dict[str, int]:
    """Copy into a new or existing store; return the rows per table."""
    if not damaged.exists():
        what = f"{damaged} does not exist."
        raise StorageProblem(what, "Damaged files are next to whyidle.db, as whyidle.db.damaged-*")
    connect.check_header(damaged)
    connection = connect.for_writing(into).connection
    try:
        connection.execute("ATTACH ? AS bad", (f"{damaged.absolute().as_uri()}?mode=ro",))
        copied = _Copy(connection).everything()
        with transaction(connection):
            recovery.recover(connection)
            timelines.drop_orphans(connection)
        connection.execute("DETACH bad")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        what = f"Nothing in {damaged} can be read: {error}."
        raise StorageProblem(what) from error
    finally:
        connection.close()
    return copied


class _Copy:
    """One salvage: the ids of the damaged file continue those of the new one."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # Fails here when not even the list of tables can be read.
        connection.execute("SELECT count(*) FROM bad.sqlite_master").fetchone()
        # AUTOINCREMENT tables never reuse the ids of deleted rows.
        given = dict(connection.execute("SELECT name, seq FROM main.sqlite_sequence").fetchall())
        self._shift = {
            table: max(self._highest("main", table) or 0, given.get(table) or 0) for table in _BY_ID
        }
        self._copied: dict[str, int] = {}

    def everything(self) -> dict[str, int]:
        for table in _BY_ID:
            self._by_range(table, "id", (0, (self._highest("bad", table) or 1 << 20) + 1), 1)
        for table, owner in _BY_OWNER.items():
            self._from_both_ends(table, owner)
        for scope in Scope:
            for level in LEVELS:
                self._samples(scope, level)
        return {table: rows for table, rows in self._copied.items() if rows}

    def _samples(self, scope: Scope, level: Level) -> None:
        table = level.table(scope)
        grain = max(level.width_ms, 1000)
        if level is RAW:
            bits = SUBJECT_BITS
            ends = self._ends(table, "at")
            self._by_range(table, "at", ends, grain << bits, scope)
            return
        ends = self._ends(table, "ts_ms")
        highest = self._highest("bad", _SUBJECT_TABLE[scope]) or _SUBJECTS_GUESSED
        for subject in range(highest + 1):
            self._by_range(table, "ts_ms", ends, grain, scope, f"subject = {subject}")

    def _by_range(  # noqa: PLR0913, PLR0917  a table, its key, and which part of it
        self,
        table: str,
        key: str,
        ends: tuple[int, int],
        grain: int,
        scope: Scope | None = None,
        where: str = "1",
    ) -> None:
        names = self._columns(table)
        if not names:
            return
        copy = (
            f"INSERT OR IGNORE INTO main.{table} ({', '.join(names)})"  # noqa: S608
            f" SELECT {', '.join(self._cells(table, names, scope))} FROM bad.{table}"
            f" WHERE {where} AND {key} >= ? AND {key} < ?"
        )
        failures = 0
        ranges = [ends]
        while ranges and failures < _MOST_FAILURES:
            start, end = ranges.pop()
            try:
                rows = self._connection.execute(copy, (start, end)).rowcount
                self._copied[table] = self._copied.get(table, 0) + rows
            except sqlite3.DatabaseError as error:
                if not connect.is_corrupt(error):
                    raise
                failures += 1
                if end - start > grain:
                    middle = (start + end) // 2
                    ranges += [(start, middle), (middle, end)]

    def _from_both_ends(self, table: str, owner: str) -> None:
        names = self._columns(table)
        if not names:
            return
        marks = ", ".join("?" * len(names))
        insert = f"INSERT OR IGNORE INTO main.{table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608
        for order in ("ASC", "DESC"):
            select = (
                f"SELECT {', '.join(self._cells(table, names, None))} FROM bad.{table}"  # noqa: S608
                f" ORDER BY {owner} {order}"
            )
            try:
                for row in self._connection.execute(select):
                    added = self._connection.execute(insert, row).rowcount
                    self._copied[table] = self._copied.get(table, 0) + added
            except sqlite3.DatabaseError as error:
                if not connect.is_corrupt(error):
                    raise
            else:
                return

    def _cells(self, table: str, names: Iterable[str], scope: Scope | None) -> list[str]:
        """Return the SQL of each column, with ids and subjects shifted."""
        subject = str(self._shift[_SUBJECT_TABLE[scope]]) if scope else self._shift_by_scope()
        shifts = {
            "id": str(self._shift.get(table, 0)),
            "run": str(self._shift["run"]),
            "gpu": str(self._shift["gpu"]),
            "process": str(self._shift["process"]),
            "trace": str(self._shift["trace"]),
            "at": subject,
            "subject": subject,
        }
        return [f"{name} + {shifts[name]}" if name in shifts else name for name in names]

    def _shift_by_scope(self) -> str:
        whens = (f"WHEN '{s}' THEN {self._shift[t]}" for s, t in _SUBJECT_TABLE.items())
        return f"CASE scope {' '.join(whens)} ELSE 0 END"

    def _columns(self, table: str) -> Sequence[str]:
        """Return the columns that both files have, without generated ones."""
        here, there = (
            {row[1] for row in self._connection.execute(f"PRAGMA {file}.table_info({table})")}
            for file in ("main", "bad")
        )
        return sorted(here & there)

    def _highest(self, file: str, table: str) -> int | None:
        found: int | None = None
        with suppress(sqlite3.DatabaseError):
            query = f"SELECT max(id) FROM {file}.{table}"  # noqa: S608
            found = self._connection.execute(query).fetchone()[0]
        return found

    def _ends(self, table: str, key: str) -> tuple[int, int]:
        """Return the range of keys in a table, as far as readable."""
        try:
            query = f"SELECT min({key}), max({key}) FROM bad.{table}"  # noqa: S608
            start, end = self._connection.execute(query).fetchone()
        except sqlite3.DatabaseError:
            start, end = self._run_ends()
            return (start << SUBJECT_BITS, end << SUBJECT_BITS) if key == "at" else (start, end)
        return (start or 0, (end or 0) + 1)

    def _run_ends(self) -> tuple[int, int]:
        query = "SELECT min(started_ms), max(coalesce(ended_ms, started_ms + 86400000)) FROM run"
        start, end = self._connection.execute(query).fetchone()
        return (start or 0, (end or 0) + 1)

"""The tables, derived from ``METRICS``: a metric is one column of its scope's tables.

Roll-ups are keyed by (subject, time), as charts read them. Raw rows are keyed by (time, subject) in
one integer, the row id: all subjects of a tick then share the last page. Compared with (subject,
time) a commit takes a third of the time and writes a fifth of the log, pages fill up (5.9 instead
of 6.3 bytes per value with 8 GPUs), and the oldest rows go in one piece.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core.metrics import Metric, Scope, metrics_of

APPLICATION_ID: Final = 0x77686964  # "whid"
VERSION: Final = 2

# The time needs 43 of the 63 bits of a raw row's key until the year 2248.
SUBJECT_BITS: Final = 20
SUBJECTS: Final = 1 << SUBJECT_BITS
# Later than any row; the key made of it still fits.
END_MS: Final = (1 << 43) - 1

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Level:
    """One resolution: rows of ``width_ms``, kept for ``keep_ms`` (``None``: for ever)."""

    suffix: str
    width_ms: int
    keep_ms: int | None

    def table(self, scope: Scope) -> str:
        """Name of the scope's table at this level."""
        return f"{scope}_{self.suffix}"

    @property
    def span(self) -> str:
        """SQL for the rows from ``:start`` up to ``:end``, in terms of the table's key."""
        if self is RAW:
            return f"at >= :start << {SUBJECT_BITS} AND at < :end << {SUBJECT_BITS}"
        return "ts_ms >= :start AND ts_ms < :end"

    def floor(self, ts_ms: int) -> int:
        """Start of the bucket that holds this moment."""
        return ts_ms // self.width_ms * self.width_ms


RAW: Final = Level("sample", 1, DAY_MS)
R10: Final = Level("r10", 10_000, 7 * DAY_MS)
R60: Final = Level("r60", 60_000, 90 * DAY_MS)
R3600: Final = Level("r3600", 3_600_000, None)
ROLLUPS: Final = (R10, R60, R3600)
LEVELS: Final = (RAW, *ROLLUPS)

# AUTOINCREMENT: somebody's notes about run 3 must never mean another run, even after it is deleted.
_FIXED = """
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT, started_ms INTEGER NOT NULL, ended_ms INTEGER,
    end_reason TEXT, hz REAL, target_pid INTEGER, target_start_ticks INTEGER, command TEXT,
    script TEXT, framework TEXT, python TEXT, user TEXT, container TEXT, host TEXT, boot_id TEXT,
    monotonic_ns INTEGER, realtime_ns INTEGER, recorder_pid INTEGER, recorder_start_ticks INTEGER,
    recorder_namespace TEXT, exit_code INTEGER, info TEXT) STRICT;
CREATE TABLE gpu (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run(id), idx TEXT, uuid TEXT,
    name TEXT, info TEXT) STRICT;
CREATE INDEX gpu_run ON gpu(run);
CREATE TABLE process (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run(id), pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL, parent_pid INTEGER, name TEXT, command TEXT, first_ms INTEGER,
    last_ms INTEGER, rank INTEGER, info TEXT, UNIQUE(run, pid, start_ticks)) STRICT;
CREATE TABLE gpu_process (
    id INTEGER PRIMARY KEY, gpu INTEGER NOT NULL REFERENCES gpu(id),
    process INTEGER NOT NULL REFERENCES process(id), UNIQUE(gpu, process)) STRICT;
CREATE TABLE unknown (
    run INTEGER NOT NULL, scope TEXT NOT NULL, subject INTEGER NOT NULL, metric TEXT NOT NULL,
    ts_ms INTEGER NOT NULL, reason TEXT,
    PRIMARY KEY(run, scope, subject, metric, ts_ms)) STRICT, WITHOUT ROWID;
CREATE TABLE event (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, ts_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    severity TEXT NOT NULL, scope TEXT, subject INTEGER, text TEXT NOT NULL, data TEXT) STRICT;
CREATE INDEX event_run ON event(run, ts_ms);
CREATE TABLE step (
    run INTEGER NOT NULL, process INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, duration_ns INTEGER NOT NULL, samples INTEGER,
    source TEXT NOT NULL, PRIMARY KEY(run, process, ordinal)) STRICT, WITHOUT ROWID;
CREATE TABLE finding (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, ts_ms INTEGER NOT NULL, rule TEXT NOT NULL,
    severity TEXT NOT NULL, data TEXT NOT NULL) STRICT;
CREATE INDEX finding_run ON finding(run, ts_ms);
CREATE TABLE counter (
    run INTEGER NOT NULL, name TEXT NOT NULL, ts_ms INTEGER NOT NULL, value REAL,
    PRIMARY KEY(run, name, ts_ms)) STRICT, WITHOUT ROWID;
"""
# The results of a trace, one row per figure; and its timeline, as blobs of columns of thousands of
# rows. ``size`` of a trace is that of its timeline, 0 once it made room. Times are its own ticks.
# The index covers all that decides which blocks to open: no other page is read for that.
# AUTOINCREMENT: a reader of a timeline that makes room must find nothing, not another's blocks.
_TRACES = """
CREATE TABLE trace (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER, ts_ms INTEGER NOT NULL, format TEXT NOT NULL,
    path TEXT NOT NULL, header TEXT, size INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX trace_run ON trace(run);
CREATE TABLE trace_device (
    trace INTEGER NOT NULL, device INTEGER NOT NULL, kind TEXT NOT NULL, idx TEXT NOT NULL,
    host TEXT, pid INTEGER, rank INTEGER, model TEXT, span_ns INTEGER, busy_ns INTEGER,
    idle_ns INTEGER, compute_ns INTEGER, comm_ns INTEGER, exposed_comm_ns INTEGER, copy_ns INTEGER,
    exposed_copy_ns INTEGER, kernels INTEGER, comm_kernels INTEGER, copies INTEGER,
    PRIMARY KEY(trace, device)) STRICT, WITHOUT ROWID;
CREATE TABLE trace_slice (
    trace INTEGER NOT NULL, device INTEGER NOT NULL, budget TEXT NOT NULL, slice TEXT NOT NULL,
    detail TEXT NOT NULL, ns INTEGER NOT NULL,
    PRIMARY KEY(trace, device, budget, slice, detail)) STRICT, WITHOUT ROWID;
CREATE TABLE trace_kernel (
    trace INTEGER NOT NULL, place INTEGER NOT NULL, device INTEGER, name TEXT NOT NULL,
    count INTEGER NOT NULL, total_ns INTEGER NOT NULL,
    PRIMARY KEY(trace, place)) STRICT, WITHOUT ROWID;
CREATE TABLE trace_step (
    trace INTEGER NOT NULL, ordinal INTEGER NOT NULL, start INTEGER NOT NULL,
    stop INTEGER NOT NULL, PRIMARY KEY(trace, ordinal)) STRICT, WITHOUT ROWID;
CREATE TABLE trace_block (
    id INTEGER PRIMARY KEY AUTOINCREMENT, trace INTEGER NOT NULL, tbl TEXT NOT NULL,
    lane INTEGER NOT NULL, level INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    rows INTEGER NOT NULL, data BLOB NOT NULL) STRICT;
CREATE INDEX trace_block_trace ON trace_block(trace, tbl, lane, level, start, stop, rows);
"""
# Tables with a column ``trace``.
TRACE_TABLES: Final = (
    "trace_device", "trace_slice", "trace_kernel", "trace_step", "trace_block",
)  # fmt: skip
# Tables with a column ``run``; sample tables refer to these by their subject.
RUN_TABLES: Final = (
    "gpu", "process", "unknown", "event", "step", "finding", "trace", "counter",
)  # fmt: skip


def _statements(text: str) -> tuple[str, ...]:
    return tuple(statement for statement in text.split(";\n") if statement.strip())


# The statements that upgrade version N to N + 1. New metric columns need no entry.
MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        # AUTOINCREMENT cannot be added to a table.
        "DROP INDEX trace_run",
        "ALTER TABLE trace RENAME TO trace_of_1",
        *_statements(_TRACES),
        "INSERT INTO trace SELECT id, run, ts_ms, format, path, header, 0 FROM trace_of_1",
        "DROP TABLE trace_of_1",
    ),
}


@dataclass(frozen=True, slots=True)
class Cells:
    """The four columns of one metric in a roll-up table.

    ``n`` is NULL if every tick of the bucket has a value, which is nearly always: this costs a
    byte instead of a number. Its default is for rows older than the metric.
    """

    n: str
    total: str
    least: str
    most: str


def cells(metric: Metric) -> Cells:
    """Return the roll-up columns of a metric."""
    return Cells(*(f"{metric.column}__{part}" for part in ("n", "sum", "min", "max")))


def columns(scope: Scope, level: Level) -> dict[str, str]:
    """Return the columns of a table after its key, in order, with their types."""
    if level is RAW:
        return {m.column: "REAL" for m in metrics_of(scope)}
    found = {"ticks": "INTEGER"}
    for metric in metrics_of(scope):
        part = cells(metric)
        found |= {
            part.n: "INTEGER DEFAULT 0",
            part.total: "REAL",
            part.least: "REAL",
            part.most: "REAL",
        }
    return found


def create(connection: sqlite3.Connection) -> None:
    """Create every table; the caller holds the transaction."""
    for statement in (*_statements(_FIXED), *_statements(_TRACES)):
        connection.execute(statement)
    for scope in Scope:
        for level in LEVELS:
            connection.execute(_sample_table(scope, level))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Bring an older file up to date; the caller holds the transaction."""
    for step in range(version, VERSION):
        for statement in MIGRATIONS.get(step, ()):
            connection.execute(statement)
    for scope in Scope:
        for level in LEVELS:
            _add_columns(connection, level.table(scope), columns(scope, level))
    if version != VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _sample_table(scope: Scope, level: Level) -> str:
    body = ", ".join(f"{name} {kind}" for name, kind in columns(scope, level).items())
    if level is RAW:
        # Generated columns take no space: they are for queries by hand, and our own.
        return (
            f"CREATE TABLE {level.table(scope)} (at INTEGER PRIMARY KEY,"
            f" subject INTEGER AS (at & {SUBJECTS - 1}) VIRTUAL,"
            f" ts_ms INTEGER AS (at >> {SUBJECT_BITS}) VIRTUAL, {body}) STRICT"
        )
    return (
        f"CREATE TABLE {level.table(scope)} (subject INTEGER NOT NULL, ts_ms INTEGER NOT NULL,"
        f" {body}, PRIMARY KEY(subject, ts_ms)) STRICT, WITHOUT ROWID"
    )


def present(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Return the columns of a table in this file."""
    return frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))


def _add_columns(connection: sqlite3.Connection, table: str, wanted: Mapping[str, str]) -> None:
    there = present(connection, table)
    for name, kind in wanted.items():
        if name not in there:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")

"""Traces in the store: results as rows, timelines as blocks of columns.

Imports numpy: a recorder must never import this, even indirectly.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.store import connect, timelines
from whyidle.monitor.store.blocks import Block, Found
from whyidle.monitor.store.connect import transaction
from whyidle.monitor.store.disk_quota import DiskQuota
from whyidle.monitor.store.reader import UnknownRun
from whyidle.monitor.store.writer import SIZE_CAP

# The approximate size of a row beside the timeline.
_ROW_BYTES: Final = 64
_LIST: Final = "List what was recorded: monitor runs"
# What ``_escaped`` writes: a backslash, or half a character that stands for a byte.
_ESCAPE: Final = re.compile(r"\\(\\|ud[89a-f][0-9a-f]{2})")

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrace:
    """Everything that is kept of a trace."""

    run: int | None
    format: str
    path: str
    header: Mapping[str, object]
    # Rows of the tables ``trace_*``, by table and column names.
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    blocks: Sequence[Block] = ()
    ts_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)


class TraceRow(NamedTuple):
    """A trace as stored in the file."""

    id: int
    run: int | None
    ts_ms: int
    format: str
    path: str
    header: dict[str, Any] | None  # none: it is damaged
    size: int


def put(path: Path, new: NewTrace, size_cap: int = SIZE_CAP) -> int:
    """Store a trace in one transaction, whole or not at all; return its id."""
    opened = connect.for_writing(path)
    connection = opened.connection
    try:
        if opened.moved_aside and new.run is not None:
            what = f"The recordings were damaged; they now lie in {opened.moved_aside}."
            raise StorageProblem(what, f"Type: monitor doctor --salvage {opened.moved_aside}")
        with _in_words(path):
            size = sum(len(block.data) for block in new.blocks)
            small = _ROW_BYTES * sum(map(len, new.rows.values()))
            room = DiskQuota(connection, path, size_cap)
            room.reserve(size + small)
            try:
                with transaction(connection):
                    return _insert(connection, new, size)
            except sqlite3.Error:
                # What could not be stored is still in the log, and may be what fills the disk.
                room.fold()
                raise
    finally:
        connection.close()


def forget(path: Path, files: Collection[Path]) -> None:
    """Delete traces outside of any recording whose files are gone."""
    connection = connect.for_writing(path).connection
    try:
        with _in_words(path), transaction(connection):
            for file in files:
                query = "SELECT id FROM trace WHERE run IS NULL AND path = ?"
                rows = connection.execute(query, (_escaped(str(file)),)).fetchall()
                timelines.delete(connection, [row[0] for row in rows])
    finally:
        connection.close()


def _insert(connection: sqlite3.Connection, new: NewTrace, size: int) -> int:
    _make_way(connection, new)
    row = (new.run, new.ts_ms, new.format, _escaped(new.path), json.dumps(new.header), size)
    trace = connection.execute(
        "INSERT INTO trace (run, ts_ms, format, path, header, size) VALUES (?, ?, ?, ?, ?, ?)"
        " RETURNING id",
        [_clean(cell) for cell in row],
    ).fetchall()[0][0]
    for table, rows in new.rows.items():
        for names in {tuple(row) for row in rows}:
            cells = ([trace, *map(_clean, row.values())] for row in rows if tuple(row) == names)
            marks = ", ?" * len(names)
            statement = f"INSERT INTO {table} ({', '.join(('trace', *names))}) VALUES (?{marks})"  # noqa: S608
            connection.executemany(statement, cells)
    connection.executemany(
        "INSERT INTO trace_block (trace, tbl, lane, level, start, stop, rows, data)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        ((trace, b.table, b.lane, b.level, b.start, b.stop, b.rows, b.data) for b in new.blocks),
    )
    return int(trace)


def _make_way(connection: sqlite3.Connection, new: NewTrace) -> None:
    if new.run is not None:
        _check_run(connection, new.run)
        return
    # Analysing the same file again and again must not fill the store.
    again = "SELECT id FROM trace WHERE run IS NULL AND path = ?"
    rows = connection.execute(again, (_escaped(new.path),)).fetchall()
    timelines.delete(connection, [row[0] for row in rows])


def _check_run(connection: sqlite3.Connection, run: int) -> None:
    if not connection.execute("SELECT 1 FROM run WHERE id = ?", (run,)).fetchone():
        what = f"There is no recording '{run}'."
        raise UnknownRun(what, "List them: monitor runs")


def _clean(cell: object) -> object:
    """Return what SQLite can hold: names in damaged files have half characters."""
    return cell.encode(errors="backslashreplace").decode() if isinstance(cell, str) else cell


def _escaped(path: str) -> str:
    """Return a path as text, with escapes for bytes that are no character."""
    return path.replace("\\", "\\\\").encode(errors="backslashreplace").decode()


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: m[1] if m[1] == "\\" else chr(int(m[1][1:], 16)), text)


def _header(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class TraceReader:
    """Reads stored traces, beside any number of recorders."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        # A damaged name must not cost the row, let alone the other rows.
        connection.text_factory = lambda text: text.decode(errors="replace")
        # A file from an older version has neither traces nor tables for them.
        self._empty = not timelines.there(connection)

    @classmethod
    def open(cls, path: Path) -> TraceReader:
        """Open an existing file. Every failure raises a ``StorageProblem``."""
        return cls(path, connect.for_reading(path))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def traces(self, run: int | None = None) -> list[TraceRow]:
        """Return the traces of a run, or all, oldest first."""
        with _in_words(self.path):
            if run is not None:
                _check_run(self._connection, run)
            return self._traces("? IS NULL OR run = ?", run, run)

    def trace(self, trace: int) -> TraceRow:
        """Return one trace."""
        with _in_words(self.path):
            found = self._traces("id = ?", trace)
        if not found:
            raise UsageProblem(f"There is no stored trace {trace}.", _LIST)
        return found[0]

    def rows(self, table: str, trace: int, names: Collection[str]) -> list[tuple[Any, ...]]:
        """Return these columns of a table ``trace_*``."""
        if self._empty:
            return []
        query = f"SELECT {', '.join(names)} FROM {table} WHERE trace = ?"  # noqa: S608
        with _in_words(self.path):
            return self._connection.execute(query, (trace,)).fetchall()

    def blocks(self, trace: int) -> list[Found]:
        """Return the blocks in the timeline of a trace."""
        names = ("id", "tbl", "lane", "level", "start", "stop", "rows")
        return [Found(*row) for row in self.rows("trace_block", trace, names)]

    def data(self, block: int) -> bytes:
        """Return the columns of a block."""
        with _in_words(self.path):
            query = "SELECT data FROM trace_block WHERE id = ?"
            row = self._connection.execute(query, (block,)).fetchone()
        if row is None:
            raise StorageProblem("This timeline has just made room for another.", _LIST)
        return bytes(row[0])

    def _traces(self, where: str, *arguments: object) -> list[TraceRow]:
        if self._empty:
            return []
        names = ", ".join(TraceRow._fields)
        query = f"SELECT {names} FROM trace WHERE {where} ORDER BY id"  # noqa: S608
        return [
            TraceRow(*row)._replace(path=_unescaped(row[4]), header=_header(row[5]))
            for row in self._connection.execute(query, arguments)
        ]


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into sentences."""
    try:
        yield
    except sqlite3.Error as error:
        raise connect.cannot_open(path, error) from error

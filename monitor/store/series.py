"""A chart's query: the coarsest level that is fine enough, and finer ones for its tail."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.store.records import Point
from whyidle.monitor.store.schema import LEVELS, R10, RAW, Level, cells, present
from whyidle.monitor.store.sealed import Sealed
from whyidle.monitor.store.subjects import among, end_of, firsts, last

# Widths of raw buckets: each divides the next level, so that charts line up.
_RAW_WIDTHS: Final = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, R10.width_ms)


class Columns:
    """The columns of the file; an older file lacks the newest metrics."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._present: dict[str, frozenset[str]] = {}

    def has(self, metric: Metric, level: Level) -> bool:
        """Tell whether a table has the metric."""
        table = level.table(metric.scope)
        if table not in self._present:
            self._present[table] = present(self._connection, table)
        name = metric.column if level is RAW else cells(metric).total
        return name in self._present[table]

    def parts(self, metric: Metric, level: Level) -> str:
        """Return the SQL for a metric's n, sum, least and most in one row."""
        if not self.has(metric, level):
            return "0, NULL, NULL, NULL"
        if level is RAW:
            name = metric.column
            return f"{name} IS NOT NULL, {name}, {name}, {name}"
        cell = cells(metric)
        return f"coalesce({cell.n}, ticks), {cell.total}, {cell.least}, {cell.most}"


@dataclass(frozen=True, slots=True)
class Question:
    """A chart's question: one metric of some subjects in ``[start, end)``."""

    metric: Metric
    subjects: Sequence[int]
    start_ms: int
    end_ms: int
    points: int

    def buckets(self, width: int) -> int:
        """Return how many aligned buckets of a width the span touches."""
        return (self.end_ms - 1) // width - self.start_ms // width + 1


def read(
    connection: sqlite3.Connection, columns: Columns, sealed: Sealed, asked: Question
) -> dict[int, list[Point]]:
    """Return the series of each subject."""
    if asked.end_ms <= asked.start_ms or not asked.subjects:
        return {subject: [] for subject in asked.subjects}
    level, width = resolution(connection, asked)
    if level is RAW:
        return _raw(connection, columns, asked, width)
    start = asked.start_ms // width * width
    return {
        subject: sealed.points(
            (asked.metric, subject, level, width),
            start,
            asked.end_ms,
            partial(_buckets, connection, columns, asked.metric, subject, level, width),
        )
        for subject in asked.subjects
    }


def pieces(
    connection: sqlite3.Connection,
    scope: Scope,
    level: Level,
    subject: int,
    span: tuple[int, int],
) -> list[tuple[Level, int, int]]:
    """Split a span: closed buckets come from the level, the rest from the finer ones."""
    start, end = span[0], min(span[1], end_of(connection, scope, subject))
    found = []
    for piece in reversed(LEVELS[: LEVELS.index(level) + 1]):
        done = end
        if piece is not RAW:
            bucket = last(connection, scope, piece, subject)
            done = start if bucket is None else min(end, bucket + piece.width_ms)
        if done > start:
            found.append((piece, start, done))
            start = done
    return found


def resolution(connection: sqlite3.Connection, asked: Question) -> tuple[Level, int]:
    """Return the level to read and the width of a bucket."""
    span = asked.end_ms - asked.start_ms
    level, width = RAW, 1
    # A span of N bucket widths may touch N + 1 aligned buckets: then one fewer fits.
    for points in (asked.points, asked.points - 1):
        wanted = -(-span // max(points, 1))
        level = _level(connection, asked, wanted)
        if level is RAW:
            width = next(w for w in _RAW_WIDTHS if w >= wanted)
        else:
            width = max(1, -(-wanted // level.width_ms)) * level.width_ms
        if asked.buckets(width) <= asked.points:
            break
    return level, width


def _level(connection: sqlite3.Connection, asked: Question, wanted: int) -> Level:
    place = max(i for i, level in enumerate(LEVELS) if level.width_ms <= max(wanted, 1))
    # The finest rows expire first: where they are gone, the next level answers.
    while place + 1 < len(LEVELS) and not _reaches(connection, asked, place):
        place += 1
    return LEVELS[place]


def _reaches(connection: sqlite3.Connection, asked: Question, place: int) -> bool:
    """Tell whether no coarser level has an earlier part of the span, of any subject."""
    scope = asked.metric.scope
    here = firsts(connection, scope, LEVELS[place], asked.subjects)
    late = {
        subject: first for subject, first in here.items() if first is None or first > asked.start_ms
    }
    for coarser in LEVELS[place + 1 :] if late else ():
        for subject, there in firsts(connection, scope, coarser, late).items():
            # A bucket begins before its first row: only a whole earlier bucket means older rows.
            first = late[subject]
            if there is not None and (first is None or there + coarser.width_ms <= first):
                return False
    return True


def _raw(
    connection: sqlite3.Connection, columns: Columns, asked: Question, width: int
) -> dict[int, list[Point]]:
    """Return raw rows as they are, or in buckets if there are too many.

    They are ordered by time: one pass serves all subjects.
    """
    found: dict[int, list[Point]] = {subject: [] for subject in asked.subjects}
    if not columns.has(asked.metric, RAW):
        return found
    name, table = asked.metric.column, RAW.table(asked.metric.scope)
    where = f"{RAW.span} AND {among(found)}"
    span = {"start": asked.start_ms, "end": asked.end_ms}
    if _fits(connection, f"{table} WHERE {where}", span, asked):
        query = f"SELECT subject, ts_ms, {name}, {name}, {name} FROM {table} WHERE {where}"  # noqa: S608
        query += " ORDER BY at"
    else:
        span["start"] = asked.start_ms // width * width
        query = (
            f"SELECT subject, ts_ms / {width} * {width} AS bucket, avg({name}), min({name}),"  # noqa: S608
            f" max({name}) FROM {table} WHERE {where} GROUP BY subject, bucket"
        )
    for subject, *point in connection.execute(query, span):
        found[subject].append(Point(*point))
    return found


def _fits(
    connection: sqlite3.Connection, rows: str, span: Mapping[str, int], asked: Question
) -> bool:
    """Tell whether no subject has more rows than points are wanted."""
    # LIMIT ends the count early in the usual case of far too many rows.
    most = asked.points * len(asked.subjects)
    query = f"SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT {most + 1})"  # noqa: S608
    if connection.execute(query, span).fetchone()[0] > most:
        return False
    query = f"SELECT max(n) FROM (SELECT count(*) AS n FROM {rows} GROUP BY subject)"  # noqa: S608
    return (connection.execute(query, span).fetchone()[0] or 0) <= asked.points


def _buckets(  # noqa: PLR0913, PLR0917  all of it decides the one query
    connection: sqlite3.Connection,
    columns: Columns,
    metric: Metric,
    subject: int,
    level: Level,
    width: int,
    start: int,
    end: int,
) -> tuple[list[Point], int]:
    """Return the buckets of a span that starts at a bucket, and until when they are complete."""
    scope, parts = metric.scope, pieces(connection, metric.scope, level, subject, (start, end))
    queries, arguments = [], {"subject": subject, "width": width}
    for i, (piece, begin, until) in enumerate(parts):
        where = piece.span.replace(":start", f":start{i}").replace(":end", f":end{i}")
        arguments |= {f"start{i}": begin, f"end{i}": until}
        queries.append(
            f"SELECT ts_ms / :width * :width, {columns.parts(metric, piece)}"  # noqa: S608
            f" FROM {piece.table(scope)} WHERE {where} AND subject = :subject"
        )
    if not queries:
        return [], start
    query = (
        f"WITH part(bucket, n, total, least, most) AS ({' UNION ALL '.join(queries)})"  # noqa: S608
        " SELECT bucket, sum(total) / sum(n), min(least), max(most) FROM part"
        " GROUP BY bucket ORDER BY bucket"
    )
    first, _, done = parts[0]
    sealed = done // width * width if first is level else start
    return [Point(*row) for row in connection.execute(query, arguments)], sealed

"""The subjects of a run and of a table, and the times they cover."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Final

from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.store.schema import END_MS, R10, RAW, Level

_OF_RUN: Final = {
    Scope.GPU: "SELECT id FROM gpu WHERE run = ?",
    Scope.GPU_PROCESS: "SELECT id FROM gpu_process WHERE gpu IN (SELECT id FROM gpu WHERE run = ?)",
    Scope.PROCESS: "SELECT id FROM process WHERE run = ?",
    Scope.JOB: "SELECT id FROM run WHERE id = ?",
    Scope.HOST: "SELECT id FROM run WHERE id = ?",
    Scope.MONITOR: "SELECT id FROM run WHERE id = ?",
}
_RUN_OF: Final = {
    Scope.GPU: "SELECT run FROM gpu WHERE id = ?",
    Scope.GPU_PROCESS: "SELECT run FROM gpu WHERE id = (SELECT gpu FROM gpu_process WHERE id = ?)",
    Scope.PROCESS: "SELECT run FROM process WHERE id = ?",
    Scope.JOB: "SELECT ?",
    Scope.HOST: "SELECT ?",
    Scope.MONITOR: "SELECT ?",
}


def of_run(connection: sqlite3.Connection, run: int, scope: Scope) -> list[int]:
    """Return the subjects of a run, oldest first."""
    return [row[0] for row in connection.execute(_OF_RUN[scope] + " ORDER BY id", (run,))]


def end_of(connection: sqlite3.Connection, scope: Scope, subject: int) -> int:
    """Return the moment after which a subject can have no rows."""
    query = f"SELECT ended_ms FROM run WHERE id = ({_RUN_OF[scope]})"  # noqa: S608
    row = connection.execute(query, (subject,)).fetchone()
    return END_MS if row is None or row[0] is None else row[0] + 1


def held(
    connection: sqlite3.Connection, scope: Scope, level: Level, after: int = -1, most: int = -1
) -> list[tuple[int, int]]:
    """Return the subjects of a roll-up, each with its first bucket.

    It jumps from one to the next without reading the rows between. There may be tens of thousands
    of subjects: ``most`` and ``after`` select a part.
    """
    table = level.table(scope)
    query = (
        f"WITH RECURSIVE held(subject) AS (SELECT min(subject) FROM {table} WHERE subject > ?"  # noqa: S608
        f" UNION ALL SELECT (SELECT min(subject) FROM {table} WHERE subject > held.subject)"
        " FROM held WHERE subject IS NOT NULL LIMIT ?)"
        f" SELECT subject, (SELECT min(ts_ms) FROM {table} WHERE subject = held.subject)"
        " FROM held WHERE subject IS NOT NULL"
    )
    return connection.execute(query, (after, most)).fetchall()


def firsts(
    connection: sqlite3.Connection, scope: Scope, level: Level, subjects: Iterable[int]
) -> dict[int, int | None]:
    """Return the moments from which a table can answer for some subjects.

    Raw rows expire by age alone, so this is the same for all subjects of a scope.
    """
    if level is RAW:
        return dict.fromkeys(subjects, raw_edge(connection, scope, "ASC"))
    table = level.table(scope)
    query = (
        f"SELECT value, (SELECT min(ts_ms) FROM {table} WHERE subject = value)"  # noqa: S608
        " FROM json_each(?)"
    )
    return dict(connection.execute(query, (json.dumps(list(subjects)),)))


def last(connection: sqlite3.Connection, scope: Scope, level: Level, subject: int) -> int | None:
    """Return the last bucket of a subject in a roll-up."""
    query = f"SELECT max(ts_ms) FROM {level.table(scope)} WHERE subject = ?"  # noqa: S608
    found: int | None = connection.execute(query, (subject,)).fetchone()[0]
    return found


def raw_edge(connection: sqlite3.Connection, scope: Scope, order: str) -> int | None:
    """Return the first (``ASC``) or last (``DESC``) moment of all raw rows of a scope."""
    query = f"SELECT ts_ms FROM {RAW.table(scope)} ORDER BY at {order} LIMIT 1"  # noqa: S608
    row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def last_bucket(connection: sqlite3.Connection, run: int, level: Level) -> int | None:
    """Return the last bucket of a run in a roll-up: all its subjects share it."""
    found = [
        last(connection, scope, level, subject)
        for scope in Scope
        for subject in of_run(connection, run, scope)
    ]
    return max((moment for moment in found if moment is not None), default=None)


def last_moment(connection: sqlite3.Connection, run: int) -> int | None:
    """Return the time of a run's last row."""
    # A row older than the last bucket cannot be the last.
    start = last_bucket(connection, run, R10) or 0
    found: list[int] = [start]
    for scope in Scope:
        query = (
            f"SELECT max(ts_ms) FROM {RAW.table(scope)}"  # noqa: S608
            f" WHERE {RAW.span} AND {among(of_run(connection, run, scope))}"
        )
        moment = connection.execute(query, {"start": start, "end": END_MS}).fetchone()[0]
        found.append(moment or 0)
    return max(found) or None


def among(subjects: Iterable[int]) -> str:
    """Return the SQL that picks the rows of some subjects."""
    return f"subject IN ({', '.join(str(int(subject)) for subject in subjects)})"

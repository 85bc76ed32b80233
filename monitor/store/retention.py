"""What is older than its level keeps goes, a little at a time."""

from __future__ import annotations

import sqlite3
from typing import Final

from whyidle.monitor.metrics import Scope
from whyidle.monitor.store.schema import LEVELS, RAW, Level
from whyidle.monitor.store.subjects import first, held, raw_edge

# At most so many rows of a subject at once: after a long pause the first tick must not wait for
# days of rows to go, and being called each minute it still catches up 60 times faster than time.
_ROWS_AT_ONCE: Final = 3600
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
# A reason that comes and goes each second would fill the disk; of the past the last one is enough.
_OUTLIVED: Final = """
DELETE FROM unknown WHERE ts_ms < :edge AND EXISTS (
    SELECT 1 FROM unknown AS later WHERE later.run = unknown.run AND later.scope = unknown.scope
    AND later.subject = unknown.subject AND later.metric = unknown.metric
    AND later.ts_ms > unknown.ts_ms AND later.ts_ms < :edge)
"""


def expire(connection: sqlite3.Connection, now_ms: int) -> None:
    """Delete what is too old; the caller holds the transaction."""
    for level in LEVELS:
        if level.keep_ms is not None:
            step = _ROWS_AT_ONCE * max(level.width_ms, 1000)
            for scope in Scope:
                delete_before(connection, scope, level, now_ms - level.keep_ms, step)
    # Called each minute; this reads the whole table.
    if now_ms % _HOUR_MS < _MINUTE_MS and RAW.keep_ms is not None:
        connection.execute(_OUTLIVED, {"edge": now_ms - RAW.keep_ms})


def delete_before(
    connection: sqlite3.Connection, scope: Scope, level: Level, before: int, step: int
) -> int:
    """Delete rows of one table older than a moment, of each subject no more than a step."""
    table = level.table(scope)
    if level is RAW:
        oldest = raw_edge(connection, scope, "ASC")
        if oldest is None or oldest >= before:
            return 0
        span = {"start": 0, "end": min(before, oldest + step)}
        return connection.execute(f"DELETE FROM {table} WHERE {RAW.span}", span).rowcount  # noqa: S608
    statement = f"DELETE FROM {table} WHERE subject = ? AND ts_ms < ?"  # noqa: S608
    deleted = 0
    for subject in list(held(connection, scope, level)):
        oldest = first(connection, scope, level, subject)
        if oldest is not None and oldest < before:
            arguments = (subject, min(before, oldest + step))
            deleted += connection.execute(statement, arguments).rowcount
    return deleted

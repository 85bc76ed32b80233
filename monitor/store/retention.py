"""Delete rows that have outlived their level, a few at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.store.schema import END_MS, LEVELS, RAW, Level
from whyidle.monitor.store.subjects import held, raw_edge

# Limits the rows deleted per subject at once: after a long pause the first tick must not wait for
# days of rows to go. Called each minute, it still catches up 60 times faster than time passes.
_ROWS_AT_ONCE: Final = 3600
# Limits the subjects at once: each of 40,000 still has its turn within an hour and a half.
_SUBJECTS_AT_ONCE: Final = 500
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
# A reason that comes and goes each second would fill the disk; of the old ones, the last is enough.
_OUTLIVED: Final = """
DELETE FROM unknown WHERE ts_ms < :edge AND EXISTS (
    SELECT 1 FROM unknown AS later WHERE later.run = unknown.run AND later.scope = unknown.scope
    AND later.subject = unknown.subject AND later.metric = unknown.metric
    AND later.ts_ms > unknown.ts_ms AND later.ts_ms < :edge)
"""


class Retention:
    """Remembers which subjects are next: a job may have had tens of thousands of processes."""

    def __init__(self) -> None:
        self._turn: dict[tuple[Scope, Level], int] = {}

    def expire(self, connection: sqlite3.Connection, now_ms: int) -> None:
        """Delete rows that are too old; the caller holds the transaction."""
        for level in LEVELS:
            if level.keep_ms is None:
                continue
            step = _ROWS_AT_ONCE * max(level.width_ms, 1000)
            for scope in Scope:
                if level is RAW:
                    _delete_raw(connection, scope, now_ms - level.keep_ms, step)
                else:
                    self._take_turns(connection, scope, level, (now_ms - level.keep_ms, step))
        # Not at each call: this reads the whole table.
        if now_ms % _HOUR_MS < _MINUTE_MS and RAW.keep_ms is not None:
            connection.execute(_OUTLIVED, {"edge": now_ms - RAW.keep_ms})

    def _take_turns(
        self, connection: sqlite3.Connection, scope: Scope, level: Level, old: tuple[int, int]
    ) -> None:
        after = self._turn.get((scope, level), -1)
        some = held(connection, scope, level, after, _SUBJECTS_AT_ONCE)
        self._turn[scope, level] = some[-1][0] if len(some) == _SUBJECTS_AT_ONCE else -1
        _delete_buckets(connection, scope, level, some, old)


def delete_before(connection: sqlite3.Connection, scope: Scope, level: Level, before: int) -> int:
    """Delete all rows of one table older than a moment."""
    if level is RAW:
        return _delete_raw(connection, scope, before, END_MS)
    some = held(connection, scope, level)
    return _delete_buckets(connection, scope, level, some, (before, END_MS))


def _delete_raw(connection: sqlite3.Connection, scope: Scope, before: int, step: int) -> int:
    oldest = raw_edge(connection, scope, "ASC")
    if oldest is None or oldest >= before:
        return 0
    span = {"start": 0, "end": min(before, oldest + step)}
    return connection.execute(f"DELETE FROM {RAW.table(scope)} WHERE {RAW.span}", span).rowcount  # noqa: S608


def _delete_buckets(
    connection: sqlite3.Connection,
    scope: Scope,
    level: Level,
    some: Sequence[tuple[int, int]],
    old: tuple[int, int],
) -> int:
    before, step = old
    ends = [(s, min(before, oldest + step)) for s, oldest in some if oldest < before]
    if not ends:
        return 0
    statement = f"DELETE FROM {level.table(scope)} WHERE subject = ? AND ts_ms < ?"  # noqa: S608
    return connection.executemany(statement, ends).rowcount

"""Roll-ups: n, sum, least and most of every metric per 10 s, 60 s and hour.

A bucket is always computed whole from the finer level and replaces the old one, so computing it
twice is harmless, and a killed recorder loses nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import cache

from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.store.rows import Recording
from whyidle.monitor.store.schema import END_MS, LEVELS, RAW, ROLLUPS, Level, cells, columns
from whyidle.monitor.store.subjects import among, last_bucket, of_run


def due(recording: Recording) -> bool:
    """Tell whether the newest tick has closed a bucket; cheap enough for every tick."""
    return any(
        oldest is not None and level.floor(recording.newest_ms) > oldest
        for level, oldest in zip(ROLLUPS, recording.pending, strict=True)
    )


def roll_up(
    connection: sqlite3.Connection, recording: Recording, until_ms: int | None
) -> list[int | None]:
    """Roll up the closed buckets before ``until_ms`` (``None``: the open ones too).

    The caller holds the transaction, and sets ``pending`` to the result after the commit.
    """
    left: list[int | None] = []
    for level, oldest in zip(ROLLUPS, recording.pending, strict=True):
        end = END_MS if until_ms is None else level.floor(until_ms)
        if oldest is None or oldest >= end:
            left.append(oldest)
            continue
        for scope, seen in recording.seen.items():
            some = [subject for subject, ms in seen.items() if ms >= oldest]
            _fill(connection, scope, level, some, (level.floor(oldest), end))
        # Newer rows wait for the bucket that starts there; there may be none.
        left.append(end if recording.newest_ms >= end else None)
    return left


def fill_missing(connection: sqlite3.Connection, run: int) -> None:
    """Compute what a killed recorder could not; the caller holds the transaction."""
    for level in ROLLUPS:
        # Strictly after the last bucket: part of an older one's finer rows may be gone.
        last = last_bucket(connection, run, level)
        start = 0 if last is None else last + level.width_ms
        for scope in Scope:
            _fill(connection, scope, level, of_run(connection, run, scope), (start, END_MS))


def _fill(
    connection: sqlite3.Connection,
    scope: Scope,
    level: Level,
    subjects: Iterable[int],
    span: tuple[int, int],
) -> None:
    some = sorted(subjects)
    start, end = span
    arguments = {"start": start, "end": end, "width": level.width_ms}
    if level is ROLLUPS[0]:
        # Raw rows are ordered by time: one pass serves all subjects.
        if some:
            statement = _statement(scope, level).format(subjects=among(some))
            connection.execute(statement, arguments)
        return
    statement = _statement(scope, level).format(subjects="subject = :subject")
    connection.executemany(statement, [{"subject": s, **arguments} for s in some])


@cache
def _statement(scope: Scope, level: Level) -> str:
    finer = LEVELS[LEVELS.index(level) - 1]
    parts = ["count(*)" if finer is RAW else "sum(ticks)"]
    for metric in metrics_of(scope):
        cell = cells(metric)
        if finer is RAW:
            name = metric.column
            parts.append(f"nullif(count({name}), count(*))")
            parts += [f"sum({name})", f"min({name})", f"max({name})"]
        else:
            parts.append(f"nullif(sum(coalesce({cell.n}, ticks)), sum(ticks))")
            parts += [f"sum({cell.total})", f"min({cell.least})", f"max({cell.most})"]
    names = ", ".join(columns(scope, level))
    return (
        f"INSERT OR REPLACE INTO {level.table(scope)} (subject, ts_ms, {names})"  # noqa: S608
        f" SELECT subject, ts_ms / :width * :width AS bucket, {', '.join(parts)}"
        f" FROM {finer.table(scope)} WHERE {finer.span} AND {{subjects}} GROUP BY subject, bucket"
    )

"""A run in one number per metric: now, and over the whole run."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from typing import Final

from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.store.records import Key, Summary, Unknown, Value
from whyidle.monitor.store.rows import BY_COLUMN
from whyidle.monitor.store.schema import END_MS, RAW
from whyidle.monitor.store.series import Columns
from whyidle.monitor.store.subjects import among, of_run
from whyidle.monitor.store.totals import totals

# Some metrics are read only every few ticks: their newest value is some rows back. An older value,
# such as an ended process's, does not count as current.
_BACK_MS: Final = 600_000
_CLOCK_MS: Final = 600_000


def latest(
    connection: sqlite3.Connection, columns: Columns, run: int, scopes: Collection[Scope]
) -> dict[Key, Value]:
    """Return the newest value of every currently known metric."""
    without = unknown(connection, run, scopes)
    found: dict[Key, Value] = {}
    for scope in scopes:
        wanted = {
            subject: [m for m in metrics_of(scope) if Key(scope, subject, m) not in without]
            for subject in of_run(connection, run, scope)
        }
        found |= _newest(connection, columns, run, scope, wanted)
    return found


def summary(
    connection: sqlite3.Connection, columns: Columns, run: int, scopes: Collection[Scope]
) -> dict[Key, Summary]:
    """Return every metric that was ever known, over the whole run."""
    found: dict[Key, Summary] = {}
    for scope in scopes:
        known = {
            subject: totals(connection, columns, scope, subject)
            for subject in of_run(connection, run, scope)
        }
        wanted = {subject: list(some) for subject, some in known.items()}
        newest = _newest(connection, columns, run, scope, wanted)
        for subject, some in known.items():
            for metric, its in some.items():
                key = Key(scope, subject, metric)
                last = newest[key].value if key in newest else None
                found[key] = Summary(int(its.n), its.mean, its.least, its.most, last)
    return found


def unknown(
    connection: sqlite3.Connection, run: int, scopes: Collection[Scope]
) -> dict[Key, Unknown]:
    """Return why each metric without a value has none, and since when."""
    # With max() SQLite takes the other columns from the row that has it.
    query = (
        "SELECT scope, subject, metric, max(ts_ms), reason FROM unknown"  # noqa: S608
        f" WHERE run = ? AND scope IN ({', '.join('?' * len(scopes))})"
        " GROUP BY scope, subject, metric"
    )
    found: dict[Key, Unknown] = {}
    for scope, subject, column, ts_ms, reason in connection.execute(query, (run, *scopes)):
        # A newer version may have recorded metrics that we do not know.
        metric = BY_COLUMN.get((scope, column))
        if reason is not None and metric is not None:
            found[Key(metric.scope, subject, metric)] = Unknown(ts_ms, reason)
    return found


def _newest(
    connection: sqlite3.Connection,
    columns: Columns,
    run: int,
    scope: Scope,
    wanted: Mapping[int, list[Metric]],
) -> dict[Key, Value]:
    """Return the newest values of some metrics per subject, going back from the run's end."""
    metrics = [m for m in metrics_of(scope) if columns.has(m, RAW)]
    open_keys = {Key(scope, s, m) for s, some in wanted.items() for m in some if m in metrics}
    found: dict[Key, Value] = {}
    if not open_keys:
        return found
    names = ", ".join(m.column for m in metrics)
    rows = connection.execute(
        f"SELECT subject, ts_ms, {names} FROM {RAW.table(scope)}"  # noqa: S608
        f" WHERE {RAW.span} AND {among(wanted)} ORDER BY at DESC",
        _span(connection, run),
    )
    newest = None
    for subject, ts_ms, *cells in rows:
        newest = ts_ms if newest is None else newest
        if ts_ms < newest - _BACK_MS:
            break
        for metric, cell in zip(metrics, cells, strict=True):
            if cell is not None and (key := Key(scope, subject, metric)) in open_keys:
                open_keys.remove(key)
                found[key] = Value(ts_ms, cell)
        if not open_keys:
            break
    rows.close()
    return found


def _span(connection: sqlite3.Connection, run: int) -> dict[str, int]:
    """Return the time span of a run's rows, to avoid searching those of later runs."""
    query = "SELECT started_ms, ended_ms FROM run WHERE id = ?"
    started, ended = connection.execute(query, (run,)).fetchone() or (0, None)
    # A tick may be dated a little before its run, if the clock was set meanwhile.
    return {"start": max(0, started - _CLOCK_MS), "end": END_MS if ended is None else ended + 1}

"""The bulky part of stored traces: its size, and how the oldest makes room.

Timelines have a quarter of the size limit to themselves. Beyond it the oldest are deleted whole,
before any sample, since each can be rebuilt from its trace's file. Within it they stay, and samples
make room as if there were no traces: else a full ring of samples would displace each new timeline
at once. The results of a trace (budget, kernels, steps) are small, and stay as long as its run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from whyidle.monitor.store.schema import TRACE_TABLES, present

SHARE: Final = 1 / 4


def there(connection: sqlite3.Connection) -> bool:
    """Tell whether this file can hold traces: one from an older version cannot."""
    return bool(present(connection, "trace_block"))


def sizes(connection: sqlite3.Connection) -> dict[int | None, int]:
    """Return the bytes of each run's timelines; ``None``: those without a run."""
    if not there(connection):
        return {}
    return dict(connection.execute("SELECT run, sum(size) FROM trace GROUP BY run").fetchall())


def trim(connection: sqlite3.Connection, most: float) -> int:
    """Delete the oldest timelines until the rest fits; return the number of blocks deleted."""
    held = connection.execute("SELECT id, size FROM trace WHERE size > 0 ORDER BY id").fetchall()
    total = sum(size for _, size in held)
    deleted = 0
    for trace, size in held:
        if total <= most:
            break
        gone = connection.execute("DELETE FROM trace_block WHERE trace = ?", (trace,))
        connection.execute("UPDATE trace SET size = 0 WHERE id = ?", (trace,))
        deleted += gone.rowcount
        total -= size
    return deleted


def delete(connection: sqlite3.Connection, traces: Iterable[int]) -> None:
    """Delete traces with all their data; the caller holds the transaction."""
    for trace in traces:
        for table in TRACE_TABLES:
            connection.execute(f"DELETE FROM {table} WHERE trace = ?", (trace,))  # noqa: S608
        connection.execute("DELETE FROM trace WHERE id = ?", (trace,))


def drop_orphans(connection: sqlite3.Connection) -> None:
    """Delete the data of lost traces; the caller holds the transaction."""
    for table in TRACE_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE trace NOT IN (SELECT id FROM trace)")  # noqa: S608

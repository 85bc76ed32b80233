"""The bulky part of stored traces: what it takes, and how the oldest makes room.

Timelines have a quarter of the size limit to themselves. Beyond it the oldest go, whole: before any
sample, since each can be had again from its trace's file. Within it they stay, and samples make
room as if there were no traces: else a full ring of samples would take each new timeline at once.
What a trace told (its budget, kernels, steps) is small, and stays until its run goes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from whyidle.monitor.store.schema import TRACE_TABLES, present

SHARE: Final = 1 / 4


def there(connection: sqlite3.Connection) -> bool:
    """Tell whether this file can hold traces: one that an older program wrote cannot."""
    return bool(present(connection, "trace_block"))


def sizes(connection: sqlite3.Connection) -> dict[int | None, int]:
    """Return what the timelines of each run take; ``None``: those without a run."""
    if not there(connection):
        return {}
    return dict(connection.execute("SELECT run, sum(size) FROM trace GROUP BY run").fetchall())


def trim(connection: sqlite3.Connection, most: float) -> int:
    """Delete the oldest timelines until the rest fits; returns how many blocks went."""
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
    """Delete traces with all that belongs to them; the caller holds the transaction."""
    for trace in traces:
        for table in TRACE_TABLES:
            connection.execute(f"DELETE FROM {table} WHERE trace = ?", (trace,))  # noqa: S608
        connection.execute("DELETE FROM trace WHERE id = ?", (trace,))


def drop_orphans(connection: sqlite3.Connection) -> None:
    """Delete what belongs to a trace that was lost; the caller holds the transaction."""
    for table in TRACE_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE trace NOT IN (SELECT id FROM trace)")  # noqa: S608

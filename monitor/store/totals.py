"""Sums over a span: all metrics of a scope in one pass over its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.store.schema import END_MS, R3600, Level
from whyidle.monitor.store.series import Columns, Question, pieces, resolution

# The number of values, their sum, the least and the most.
Totals = tuple[float, float, float, float]


def means(
    connection: sqlite3.Connection, columns: Columns, metrics: Sequence[Metric], asked: Question
) -> dict[Metric, float]:
    """Return the means of one scope's metrics over all subjects, without never known ones.

    It reads rows at the resolution of a chart with the same question.
    """
    level, _ = resolution(connection, asked)
    span = (level.floor(asked.start_ms), asked.end_ms)
    rows = _rows(connection, columns, metrics, asked.subjects, level, span)
    wanted = ", ".join(f"sum(t{i}) / sum(n{i})" for i in range(len(metrics)))
    found = _one(connection, rows, wanted)
    return {metric: mean for metric, mean in zip(metrics, found, strict=False) if mean is not None}


def totals(
    connection: sqlite3.Connection, columns: Columns, scope: Scope, subject: int
) -> dict[Metric, Totals]:
    """Return the totals over a whole run, without never known metrics."""
    metrics = metrics_of(scope)
    rows = _rows(connection, columns, metrics, [subject], R3600, (0, END_MS))
    wanted = ", ".join(f"sum(n{i}), sum(t{i}), min(a{i}), max(b{i})" for i in range(len(metrics)))
    found = _one(connection, rows, wanted)
    sums = [tuple(found[i : i + 4]) for i in range(0, len(found), 4)]
    return {metric: each for metric, each in zip(metrics, sums, strict=False) if each[0]}


def _one(connection: sqlite3.Connection, rows: str, wanted: str) -> tuple[Any, ...]:
    """Return the one row that combines all; empty where there can be no rows."""
    if not rows:
        return ()
    row: tuple[Any, ...] = connection.execute(f"{rows} SELECT {wanted} FROM part").fetchone()  # noqa: S608
    return row


def _rows(  # noqa: PLR0913, PLR0917  all of it decides the one query
    connection: sqlite3.Connection,
    columns: Columns,
    metrics: Sequence[Metric],
    subjects: Sequence[int],
    level: Level,
    span: tuple[int, int],
) -> str:
    """Return the SQL of all rows; empty where there can be none."""
    scope = metrics[0].scope
    names = ", ".join(f"{part}{i}" for i in range(len(metrics)) for part in "ntab")
    queries = []
    for subject in subjects:
        for piece, start, end in pieces(connection, scope, level, subject, span):
            parts = ", ".join(columns.parts(metric, piece) for metric in metrics)
            where = piece.span.replace(":start", str(start)).replace(":end", str(end))
            queries.append(
                f"SELECT {parts} FROM {piece.table(scope)}"  # noqa: S608
                f" WHERE {where} AND subject = {int(subject)}"
            )
    return f"WITH part({names}) AS ({' UNION ALL '.join(queries)})" if queries else ""

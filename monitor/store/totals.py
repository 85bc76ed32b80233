"""Sums over a span: all metrics of a scope, and all subjects, in one pass over their rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.store.records import Totals
from whyidle.monitor.store.schema import END_MS, R3600, Level
from whyidle.monitor.store.series import Columns, Question, pieces, resolution
from whyidle.monitor.store.subjects import among


def of_each(
    connection: sqlite3.Connection, columns: Columns, metrics: Sequence[Metric], asked: Question
) -> dict[int, dict[Metric, Totals]]:
    """Return the totals of one scope's metrics per subject, without never known ones.

    It reads rows at the resolution of a chart with the same question.
    """
    level, _ = resolution(connection, asked)
    span = (level.floor(asked.start_ms), asked.end_ms)
    return _read(connection, columns, metrics, asked.subjects, level, span)


def means(
    connection: sqlite3.Connection, columns: Columns, metrics: Sequence[Metric], asked: Question
) -> dict[Metric, float]:
    """Return the means of one scope's metrics over all subjects, without never known ones."""
    each = of_each(connection, columns, metrics, asked).values()
    found = {}
    for metric in metrics:
        known = [some[metric] for some in each if metric in some]
        if known:
            found[metric] = sum(one.total for one in known) / sum(one.n for one in known)
    return found


def totals(
    connection: sqlite3.Connection, columns: Columns, scope: Scope, subject: int
) -> dict[Metric, Totals]:
    """Return the totals over a whole run, without never known metrics."""
    span = (0, END_MS)
    each = _read(connection, columns, metrics_of(scope), [subject], R3600, span)
    return each.get(subject, {})


def _read(  # noqa: PLR0913, PLR0917  all of it decides the one query
    connection: sqlite3.Connection,
    columns: Columns,
    metrics: Sequence[Metric],
    subjects: Sequence[int],
    level: Level,
    span: tuple[int, int],
) -> dict[int, dict[Metric, Totals]]:
    scope, there = metrics[0].scope, []
    for (piece, start, end), some in _passes(connection, scope, level, subjects, span):
        cells = ", ".join(columns.parts(metric, piece) for metric in metrics)
        where = piece.span.replace(":start", str(start)).replace(":end", str(end))
        there.append(
            f"SELECT subject, {cells} FROM {piece.table(scope)}"  # noqa: S608
            f" WHERE {where} AND {among(some)}"
        )
    if not there:
        return {}
    names = ", ".join(f"{part}{i}" for i in range(len(metrics)) for part in "ntab")
    sums = ", ".join(f"sum(n{i}), sum(t{i}), min(a{i}), max(b{i})" for i in range(len(metrics)))
    query = (
        f"WITH part(subject, {names}) AS ({' UNION ALL '.join(there)})"  # noqa: S608
        f" SELECT subject, {sums} FROM part GROUP BY subject"
    )
    return {
        subject: {
            metric: Totals(*row[i : i + 4])
            for metric, i in zip(metrics, range(0, len(row), 4), strict=True)
            if row[i]
        }
        for subject, *row in connection.execute(query)
    }


def _passes(
    connection: sqlite3.Connection,
    scope: Scope,
    level: Level,
    subjects: Sequence[int],
    span: tuple[int, int],
) -> Iterator[tuple[tuple[Level, int, int], list[int]]]:
    """Yield what is read in one pass: a piece of the span, and the subjects that have it."""
    shared: dict[tuple[tuple[Level, int, int], ...], list[int]] = {}
    for subject in subjects:
        its = tuple(pieces(connection, scope, level, subject, span))
        shared.setdefault(its, []).append(subject)
    for parts, some in shared.items():
        for piece in parts:
            yield piece, some

"""The views that a question in SQL may be about: names that stay, whatever the tables are like.

They leave out who ran a job, on which host, and with which words on its command line.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.store import schema
from whyidle.monitor.store.schema import R60, RAW, Level


@dataclass(frozen=True, slots=True)
class View:
    """One view: its columns in order, each with the SQL that it is, and where they come from."""

    name: str
    says: str
    columns: dict[str, str]
    source: str

    @property
    def select(self) -> str:
        """Return the query behind it."""
        shown = ", ".join(f"{sql} AS {name}" for name, sql in self.columns.items())
        return f"SELECT {shown} FROM {self.source}"  # noqa: S608  all of it is ours


_RUNS: Final = View(
    "runs",
    "the recordings; seconds is NULL while one goes on",
    {
        "run": "id", "label": "label", "script": "script", "framework": "framework",
        "python": "python", "started_utc": "datetime(started_ms / 1000, 'unixepoch')",
        "seconds": "(ended_ms - started_ms) / 1000.0", "ended": "end_reason",
        "exit_code": "exit_code",
    },
    "run",
)  # fmt: skip
_AT: Final = "({}.ts_ms - run.started_ms) / 1000.0"
_FINDINGS: Final = View(
    "findings",
    "what was found during a recording, and when it was gone; the last row of a rule counts",
    {
        "run": "run.id",
        "at_s": _AT.format("finding"),
        "rule": "rule",
        "severity": "severity",
        **{
            name: f"json_extract(data, '$.{path}')"
            for name, path in {
                "state": "state",
                "title": "title",
                "confidence": "confidence",
                "lost_share_low": "lost_share[0]",
                "lost_share_high": "lost_share[1]",
                "speedup_low": "speedup[0]",
                "speedup_high": "speedup[1]",
                "expected": "expected",
                "line": "where[0].line",
                "function": "where[0].function",
            }.items()
        },
    },
    "finding JOIN run ON run.id = finding.run WHERE json_valid(data)",
)
_EVENTS: Final = View(
    "events",
    "what happened once: compilations, traces, errors of a GPU, agents that came and went",
    {
        "run": "run.id", "at_s": _AT.format("event"), "kind": "kind", "severity": "severity",
        "text": "text",
    },
    "event JOIN run ON run.id = event.run",
)  # fmt: skip
_TRACES: Final = View(
    "traces",
    "the traces that were kept",
    {
        "trace": "trace.id", "run": "trace.run", "at_s": _AT.format("trace"),
        "format": "trace.format",
    },
    "trace LEFT JOIN run ON run.id = trace.run",
)  # fmt: skip
_SLICES: Final = View(
    "trace_slices",
    "the account of a trace: seconds of each part, by device; budget says of what (window, steps)",
    {
        "trace": "trace", "device": "device", "budget": "budget", "part": "slice",
        "detail": "detail", "seconds": "ns / 1e9",
    },
    "trace_slice",
)  # fmt: skip
_KERNELS: Final = View(
    "trace_kernels",
    "the kernels of a trace that took most",
    {
        "trace": "trace", "place": "place", "device": "device", "kernel": "name",
        "count": "count", "seconds": "total_ns / 1e9",
    },
    "trace_kernel",
)  # fmt: skip
_FIXED: Final = (_RUNS, _FINDINGS, _EVENTS, _TRACES, _SLICES, _KERNELS)
_LEVELS: Final = {RAW: "seconds", R60: "minutes"}
# Whose samples they are, and how the store finds their run.
_SUBJECTS: Final = {
    Scope.JOB: ({}, "JOIN run ON run.id = {}.subject"),
    Scope.HOST: ({}, "JOIN run ON run.id = {}.subject"),
    Scope.GPU: (
        {"gpu": "gpu.idx", "gpu_name": "gpu.name"},
        "JOIN gpu ON gpu.id = {}.subject JOIN run ON run.id = gpu.run",
    ),
    Scope.PROCESS: (
        {"pid": "process.pid", "rank": "process.rank"},
        "JOIN process ON process.id = {}.subject JOIN run ON run.id = process.run",
    ),
}


def of(connection: sqlite3.Connection) -> list[View]:
    """Return the views that a file has; an older one lacks the newest columns."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    fixed = [view for view in _FIXED if view.source.split()[0] in tables]
    return [*fixed, *_samples(connection)]


def names() -> list[tuple[str, str]]:
    """Return the name of each view with what it is, for documents."""
    samples = [(_name(scope, level), _says(scope, level)) for scope, level in _each()]
    return [*((view.name, view.says) for view in _FIXED), *samples]


def _each() -> Iterator[tuple[Scope, Level]]:
    return ((scope, level) for scope in _SUBJECTS for level in _LEVELS)


def _name(scope: Scope, level: Level) -> str:
    return f"{scope}_{_LEVELS[level]}"


def _says(scope: Scope, level: Level) -> str:
    who = {Scope.JOB: "the job", Scope.HOST: "the host", Scope.GPU: "each GPU"}
    whose = who.get(scope, "each process of the job")
    kept = "each tick; kept for a day" if level is RAW else "means of a minute; kept for 90 days"
    return f"the numbers of {whose}, {kept}"


def _samples(connection: sqlite3.Connection) -> Iterator[View]:
    for scope, level in _each():
        table = level.table(scope)
        there = schema.present(connection, table)
        named, joined = _SUBJECTS[scope]
        columns = {"run": "run.id", **named, "at_s": _AT.format(table)}
        columns |= dict(_metrics(scope, level, there))
        says = _says(scope, level)
        yield View(_name(scope, level), says, columns, f"{table} {joined.format(table)}")


def _metrics(scope: Scope, level: Level, there: frozenset[str]) -> Iterator[tuple[str, str]]:
    table = level.table(scope)
    for metric in metrics_of(scope):
        if level is RAW:
            # The generated columns are not listed, the metrics are.
            if metric.column in there:
                yield metric.column, f"{table}.{metric.column}"
            continue
        part = schema.cells(metric)
        if part.total in there:
            counted = f"nullif(coalesce({table}.{part.n}, {table}.ticks), 0)"
            yield metric.column, f"{table}.{part.total} / {counted}"


def listing(views: Sequence[View]) -> Iterator[str]:
    """Yield a line for each view, with its columns."""
    for view in views:
        yield f"{view.name}: {view.says}"
        yield f"  columns: {', '.join(view.columns)}"

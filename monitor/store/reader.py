"""The viewers' side of the store: read-only, beside any number of recorders."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from whyidle.monitor.core.contracts.trace import StoredTraceJson
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.store import connect, schema, series, subjects, summary, totals
from whyidle.monitor.store.records import (
    LAST,
    Event,
    Gpu,
    GpuProcess,
    Key,
    Point,
    Process,
    Run,
    Summary,
    Totals,
    Unknown,
    Value,
)
from whyidle.monitor.store.sealed import Sealed

_Row = TypeVar("_Row", Run, Gpu, Process, GpuProcess, Event)
_JSON: Final = {"info", "data"}
_ALL: Final = frozenset(Scope)
# As SQLite says it.
_ENDLESS: Final = -1
_WITHOUT: Final = "kind NOT IN (SELECT value FROM json_each(?))"
_NO_NEWS: Final = " AND severity != 'info'"


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _in_words(
    query: Callable[Concatenate[Reader, _P], _T],
) -> Callable[Concatenate[Reader, _P], _T]:
    """Turn SQLite's errors into sentences: any query may find the file damaged."""

    @wraps(query)
    def asked(self: Reader, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return query(self, *args, **kwargs)
        except sqlite3.Error as error:
            raise connect.cannot_open(self.path, error) from error

    return asked


class UnknownRun(UsageProblem):
    """No recording goes by that name."""


class Reader:
    """Reads recordings as they are at that moment; caches what cannot change any more."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._columns = series.Columns(connection)
        self._sealed = Sealed()

    @classmethod
    def open(cls, path: Path) -> Reader:
        """Open an existing file. Every failure raises a ``StorageProblem``."""
        return cls(path, connect.for_reading(path))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs and their subjects ---------------------------------------------------------------------
    @_in_words
    def runs(self) -> list[Run]:
        """Return all recordings, oldest first."""
        return self._rows(Run, "run", "1 ORDER BY id")

    @_in_words
    def unended(self) -> list[Run]:
        """Return the recordings without an end, oldest first: they run, or their recorder died."""
        return self._rows(Run, "run", "ended_ms IS NULL ORDER BY id")

    @_in_words
    def findings(self, run: int) -> list[Mapping[str, Any]]:
        """Return what was found in a recording and is not gone since, as its recorder said it."""
        if not schema.present(self._connection, "finding"):
            return []
        # With max() SQLite takes the other columns from the row that has it.
        query = "SELECT data, max(id) FROM finding WHERE run = ? GROUP BY rule ORDER BY rule"
        said = (_object(text) for text, _ in self._connection.execute(query, (run,)))
        return [each for each in said if each is not None and each.get("state") == "found"]

    @_in_words
    def worst_finding(self, run: int) -> Mapping[str, Any] | None:
        """Return the one of them that matters most."""
        order = [str(each) for each in Severity]
        return min(
            self.findings(run),
            key=lambda each: (order.index(each["severity"]), -(each.get("expected") or 0.0)),
            default=None,
        )

    @_in_words
    def run(self, run: int) -> Run | None:
        """Return one recording."""
        return next(iter(self._rows(Run, "run", "id = ?", run)), None)

    @_in_words
    def find(self, ref: str) -> Run:
        """Return the recording named by an id, a label or ``last``; for a label, the newest.

        The last is that of a job: a pid that was mistyped does not stand in its way.
        """
        if ref == LAST:
            found = self._rows(Run, "run", "1 ORDER BY id DESC LIMIT 1")
            if found and not found[0].is_of_a_job:
                found = [run for run in reversed(self.runs()) if run.is_of_a_job][:1] or found
        else:
            # SQLite's integers end at 19 digits.
            number = int(ref) if ref.isdecimal() and len(ref) < 19 else None
            found = self._rows(Run, "run", "id = ?", number)
            found = found or self._rows(Run, "run", "label = ? ORDER BY id DESC LIMIT 1", ref)
        if not found:
            what = f"There is no recording '{ref}'."
            raise UnknownRun(what, "List them: monitor runs")
        return found[0]

    @_in_words
    def watching(self, pid: int, start_ticks: int) -> int | None:
        """Return the recording that watches a process now; ``None`` where there is none."""
        for run in reversed(self.runs()):
            if not run.is_recording:
                continue
            members = [(p.pid, p.start_ticks) for p in self.processes(run.id, pid)]
            if (pid, start_ticks) in [(run.target_pid, run.target_start_ticks), *members]:
                return run.id
        return None

    def gpus(self, run: int) -> list[Gpu]:
        """Return the GPUs of a run."""
        return self._rows(Gpu, "gpu", "run = ? ORDER BY id", run)

    @_in_words
    def processes(self, run: int, pid: int | None = None) -> list[Process]:
        """Return the processes of a run, or only those that had the given pid."""
        where = "run = ? AND pid = coalesce(?, pid) ORDER BY id"
        return self._rows(Process, "process", where, run, pid)

    @_in_words
    def gpu_processes(self, run: int) -> list[GpuProcess]:
        """Return which processes of a run used which GPUs."""
        where = "gpu IN (SELECT id FROM gpu WHERE run = ?) ORDER BY id"
        return self._rows(GpuProcess, "gpu_process", where, run)

    @_in_words
    def subjects(self, run: int, scope: Scope) -> list[int]:
        """Return the subjects that a run has in a scope."""
        return subjects.of_run(self._connection, run, scope)

    @_in_words
    def events(
        self,
        run: int,
        since_ms: int = 0,
        without: Collection[str] = (),
        most: int = _ENDLESS,
        *,
        with_news: bool = True,
    ) -> list[Event]:
        """Return the events of a run in order, optionally without some kinds and mere news.

        If there are too many, those that are more than news take precedence, then the newest.
        """
        order = "severity = 'info', " if with_news else ""
        where = (
            f"run = ? AND ts_ms >= ? AND {_WITHOUT}{'' if with_news else _NO_NEWS}"
            f" ORDER BY {order}ts_ms DESC, id DESC LIMIT ?"
        )
        found = self._rows(Event, "event", where, run, since_ms, json.dumps(list(without)), most)
        return sorted(found, key=lambda event: (event.ts_ms, event.id))

    @_in_words
    def count_events(self, run: int, without: Collection[str] = ()) -> int:
        """Return how many events a run has, optionally without some kinds."""
        query = f"SELECT count(*) FROM event WHERE run = ? AND {_WITHOUT}"  # noqa: S608
        kinds = json.dumps(list(without))
        return int(self._connection.execute(query, (run, kinds)).fetchone()[0])

    @_in_words
    def newest_trace(self, run: int) -> int | None:
        """Return the number of the newest trace of a run; shows whether a new one has come."""
        if not schema.present(self._connection, "trace"):
            return None
        query = "SELECT max(id) FROM trace WHERE run = ?"
        found: int | None = self._connection.execute(query, (run,)).fetchone()[0]
        return found

    def last_trace(self, run: int) -> StoredTraceJson | None:
        """Return the newest trace of a run as stored; ``None`` if there is none."""
        return next(iter(self.newest_traces(run, 1)), None)

    @_in_words
    def newest_traces(self, run: int, most: int) -> list[StoredTraceJson]:
        """Return the newest traces of a run as stored, without damaged ones."""
        if not schema.present(self._connection, "trace"):
            return []
        query = (
            "SELECT id, ts_ms, header FROM trace WHERE run = ? ORDER BY ts_ms DESC, id DESC LIMIT ?"
        )
        found: list[StoredTraceJson] = []
        for trace, ts_ms, text in self._connection.execute(query, (run, most)):
            header = _object(text)
            if header is not None:
                answer, taken = _part(header, "answer"), _part(header, "taken")
                found.append({"id": trace, "ts_ms": ts_ms, "answer": answer, "taken": taken})
        return found

    @_in_words
    def events_of(
        self, run: int, kind: str, scope: Scope, subject: int, most: int = _ENDLESS
    ) -> list[Event]:
        """Return the newest events of one kind and subject, newest first."""
        where = (
            "run = ? AND kind = ? AND scope = ? AND subject = ? ORDER BY ts_ms DESC, id DESC"
            " LIMIT ?"
        )
        return self._rows(Event, "event", where, run, kind, scope, subject, most)

    @_in_words
    def events_of_kinds(self, run: int, kinds: Collection[str]) -> list[Event]:
        """Return the events of a run of some kinds, in order."""
        where = "run = ? AND kind IN (SELECT value FROM json_each(?)) ORDER BY ts_ms, id"
        return self._rows(Event, "event", where, run, json.dumps(list(kinds)))

    @_in_words
    def subjects_of_events(self, run: int, kind: str, scope: Scope) -> dict[int, int]:
        """Return the subjects that have events of a kind, and when each had its newest."""
        query = (
            "SELECT subject, max(ts_ms) FROM event WHERE run = ? AND kind = ? AND scope = ?"
            " AND subject IS NOT NULL GROUP BY subject"
        )
        return dict(self._connection.execute(query, (run, kind, scope)))

    @_in_words
    def event_ids(
        self, run: int, kind: str, processes: Collection[int], within: range
    ) -> list[int]:
        """Return the events of one kind of some processes in a range of time, in order."""
        query = (
            "SELECT id FROM event WHERE run = ? AND ts_ms >= ? AND ts_ms < ? AND kind = ?"
            " AND scope = ? AND subject IN (SELECT value FROM json_each(?)) ORDER BY ts_ms, id"
        )
        some = (run, within.start, within.stop, kind, Scope.PROCESS, json.dumps(list(processes)))
        return [row[0] for row in self._connection.execute(query, some)]

    @_in_words
    def events_by_id(self, ids: Collection[int]) -> list[Event]:
        """Return some events, in order."""
        where = "id IN (SELECT value FROM json_each(?)) ORDER BY ts_ms, id"
        return self._rows(Event, "event", where, json.dumps(list(ids)))

    # Samples -------------------------------------------------------------------------------------
    @_in_words
    def series(
        self, metric: Metric, subjects: Sequence[int], start_ms: int, end_ms: int, points: int
    ) -> dict[int, list[Point]]:
        """Return a metric's buckets per subject in ``[start, end)``, limited in number."""
        asked = series.Question(metric, subjects, start_ms, end_ms, points)
        return series.read(self._connection, self._columns, self._sealed, asked)

    @_in_words
    def means(
        self,
        metrics: Sequence[Metric],
        subjects: Sequence[int],
        start_ms: int,
        end_ms: int,
        points: int,
    ) -> dict[Metric, float]:
        """Return the means of one scope's metrics in ``[start, end)``, over all subjects.

        At the resolution of ``series``, without metrics that were never known.
        """
        asked = series.Question(metrics[0], subjects, start_ms, end_ms, points)
        return totals.means(self._connection, self._columns, metrics, asked)

    @_in_words
    def totals(
        self,
        metrics: Sequence[Metric],
        subjects: Sequence[int],
        start_ms: int,
        end_ms: int,
        points: int,
    ) -> dict[int, dict[Metric, Totals]]:
        """Return what ``means`` does for each subject, with the least and the most of it."""
        asked = series.Question(metrics[0], subjects, start_ms, end_ms, points)
        return totals.of_each(self._connection, self._columns, metrics, asked)

    @_in_words
    def latest(self, run: int, scopes: Collection[Scope] = _ALL) -> dict[Key, Value]:
        """Return the newest value of every currently known metric, with its time.

        A job may have had tens of thousands of processes: omit their scopes if not needed.
        """
        return summary.latest(self._connection, self._columns, run, scopes)

    @_in_words
    def summary(self, run: int, scopes: Collection[Scope] = _ALL) -> dict[Key, Summary]:
        """Return every metric that was ever known, over the whole run; see ``latest``."""
        return summary.summary(self._connection, self._columns, run, scopes)

    @_in_words
    def unknown(self, run: int, scopes: Collection[Scope] = _ALL) -> dict[Key, Unknown]:
        """Return why each metric without a value has none, and since when; see ``latest``."""
        return summary.unknown(self._connection, run, scopes)

    def size(self) -> int:
        """Return the bytes on disk, including the log."""
        parts = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(part.stat().st_size for part in parts if part.exists())

    def check(self) -> str | None:
        """Read every page; return the first damage, ``None`` if there is none."""
        try:
            found: str = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as error:
            return str(error)
        return None if found == "ok" else found

    def _rows(self, cls: type[_Row], table: str, where: str, *arguments: object) -> list[_Row]:
        # An older file lacks the newest columns, a newer one of the same schema has more.
        there = schema.present(self._connection, table)
        names = [f.name for f in fields(cls) if f.name in there]
        query = f"SELECT {', '.join(names)} FROM {table} WHERE {where}"  # noqa: S608
        return [
            cls(**{name: _value(name, cell) for name, cell in zip(names, row, strict=True)})
            for row in self._connection.execute(query, arguments)
        ]


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _part(header: dict[str, Any], name: str) -> Any:
    found = header.get(name)
    return found if isinstance(found, dict) else None


def _value(name: str, cell: Any) -> Any:
    if cell is None:
        return None
    if name in _JSON:
        return json.loads(cell)
    return Scope(cell) if name == "scope" else cell

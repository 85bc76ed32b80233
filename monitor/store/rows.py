"""From ticks to rows: samples, and changes in why a metric is unknown."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from whyidle.monitor.core.metrics import METRICS, Metric, Scope, metrics_of
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.store.schema import RAW, ROLLUPS, SUBJECT_BITS

_METRICS: Final = {scope: metrics_of(scope) for scope in Scope}
BY_COLUMN: Final = {(m.scope, m.column): m for m in METRICS}


def _insert(scope: Scope) -> str:
    names = ", ".join(m.column for m in _METRICS[scope])
    marks = ", ?" * len(_METRICS[scope])
    # REPLACE: a tick whose commit failed half-way is retried, and must not collide then.
    return f"INSERT OR REPLACE INTO {RAW.table(scope)} (at, {names}) VALUES (?{marks})"  # noqa: S608


_INSERT: Final = {scope: _insert(scope) for scope in Scope}
_CHANGE: Final = "INSERT OR REPLACE INTO unknown VALUES (?, ?, ?, ?, ?, ?)"
# With max() SQLite takes the reason from the row that has it.
_REASONS: Final = (
    "SELECT metric, max(ts_ms), reason FROM unknown"
    " WHERE run = ? AND scope = ? AND subject = ? GROUP BY metric"
)
_LAST: Final = {
    Scope.PROCESS: "UPDATE process SET last_ms = max(coalesce(last_ms, 0), ?) WHERE id = ?",
    Scope.GPU_PROCESS: "UPDATE process SET last_ms = max(coalesce(last_ms, 0), ?)"
    " WHERE id = (SELECT process FROM gpu_process WHERE id = ?)",
}

Reasons: TypeAlias = dict[Metric, str]


@dataclass(slots=True)
class Recording:
    """What the writer remembers about a run that it records."""

    run: int
    # When each subject was last seen; ``forget`` drops those of ended processes.
    seen: dict[Scope, dict[int, int]] = field(default_factory=lambda: {s: {} for s in Scope})
    reasons: dict[tuple[Scope, int], Reasons] = field(default_factory=dict)
    # The oldest tick not yet in each roll-up level.
    pending: list[int | None] = field(default_factory=lambda: [None] * len(ROLLUPS))
    newest_ms: int = 0
    # The moment up to which the file has each process's last sighting.
    kept_ms: int = 0

    def stored(self, ticks: Iterable[Tick]) -> None:
        """Remember committed ticks that wait to be rolled up."""
        for tick in ticks:
            self.newest_ms = max(self.newest_ms, tick.ts_ms)
            for scope, readings in tick.rows.items():
                seen = self.seen[scope]
                for subject in readings:
                    seen[subject] = max(tick.ts_ms, seen.get(subject, 0))
            for place, oldest in enumerate(self.pending):
                if oldest is None or tick.ts_ms < oldest:
                    self.pending[place] = tick.ts_ms

    def keep_last(self, connection: sqlite3.Connection) -> None:
        """Write when each process was last seen; the caller holds the transaction."""
        for scope, statement in _LAST.items():
            seen = self.seen[scope].items()
            rows = [(ms, subject) for subject, ms in seen if ms > self.kept_ms]
            connection.executemany(statement, rows)

    def forget(self) -> None:
        """Forget subjects that no roll-up waits for; ``recall`` restores them."""
        waiting = min((ms for ms in self.pending if ms is not None), default=self.newest_ms)
        for scope, seen in self.seen.items():
            for subject in [subject for subject, ms in seen.items() if ms < waiting]:
                del seen[subject]
                self.reasons.pop((scope, subject), None)


def recall(connection: sqlite3.Connection, recording: Recording, ticks: Iterable[Tick]) -> None:
    """Read the reasons of subjects not seen lately: they may have been forgotten."""
    asked: set[tuple[Scope, int]] = set()
    for tick in ticks:
        for scope, readings in tick.rows.items():
            for subject in readings.keys() - recording.seen[scope].keys():
                key = (scope, subject)
                if key in asked or key in recording.reasons:
                    continue
                asked.add(key)
                rows = connection.execute(_REASONS, (recording.run, scope, subject))
                if found := _reasons(scope, rows):
                    recording.reasons[key] = found


def _reasons(scope: Scope, rows: Iterable[tuple[str, int, str | None]]) -> Reasons:
    # A newer program may have recorded metrics that we do not know.
    return {
        BY_COLUMN[scope, column]: reason
        for column, _, reason in rows
        if reason is not None and (scope, column) in BY_COLUMN
    }


class Batch:
    """The rows of some ticks of one run, ready to be written in one transaction."""

    def __init__(self, recording: Recording, ticks: Sequence[Tick]) -> None:
        self._recording = recording
        self._rows: dict[Scope, list[tuple[float | None, ...]]] = {}
        self._changes: list[tuple[int, str, int, str, int, str | None]] = []
        self._reasons: dict[tuple[Scope, int], Reasons] = {}
        self._ticks = ticks
        for tick in ticks:
            self._add(tick)

    def write(self, connection: sqlite3.Connection) -> None:
        """Insert everything; the caller holds the transaction."""
        for scope, rows in self._rows.items():
            connection.executemany(_INSERT[scope], rows)
        if self._changes:
            connection.executemany(_CHANGE, self._changes)

    def committed(self) -> None:
        """Note what is in the file now: the reasons, and the ticks to roll up."""
        self._recording.reasons |= self._reasons
        self._recording.stored(self._ticks)

    def _add(self, tick: Tick) -> None:
        ts_ms = tick.ts_ms
        first = ts_ms << SUBJECT_BITS
        for scope, readings in tick.rows.items():
            metrics = _METRICS[scope]
            rows = self._rows.setdefault(scope, [])
            for subject, reading in readings.items():
                rows.append((first | subject, *map(reading.values.get, metrics)))
                self._note(scope, subject, ts_ms, reading)

    def _note(self, scope: Scope, subject: int, ts_ms: int, reading: Reading) -> None:
        key = (scope, subject)
        old = self._reasons.get(key)
        if old is None:
            old = self._recording.reasons.get(key, {})
        # Nearly every tick ends here: the same metrics are unknown for the same reasons, or none.
        if old == reading.unknown and (not old or old.keys().isdisjoint(reading.values)):
            return
        changes: dict[Metric, str | None] = {
            metric: reason
            for metric, reason in reading.unknown.items()
            if old.get(metric) != reason
        }
        changes |= {metric: None for metric in old if metric in reading.values}
        if not changes:
            return
        new = dict(old)
        for metric, reason in changes.items():
            if reason is None:
                del new[metric]
            else:
                new[metric] = reason
            self._changes.append(
                (self._recording.run, scope, subject, metric.column, ts_ms, reason)
            )
        self._reasons[key] = new

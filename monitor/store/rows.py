"""From ticks to rows: the sample rows, and the changes of why a metric is not known."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from whyidle.monitor.metrics import METRICS, Metric, Scope, metrics_of
from whyidle.monitor.reading import Reading, Tick
from whyidle.monitor.store.schema import RAW, ROLLUPS, SUBJECT_BITS

_METRICS: Final = {scope: metrics_of(scope) for scope in Scope}
BY_COLUMN: Final = {(m.scope, m.column): m for m in METRICS}


def _insert(scope: Scope) -> str:
    names = ", ".join(m.column for m in _METRICS[scope])
    marks = ", ?" * len(_METRICS[scope])
    # REPLACE: a tick whose commit failed half-way is tried again, and must not then collide.
    return f"INSERT OR REPLACE INTO {RAW.table(scope)} (at, {names}) VALUES (?{marks})"  # noqa: S608


_INSERT: Final = {scope: _insert(scope) for scope in Scope}
_CHANGE: Final = "INSERT OR REPLACE INTO unknown VALUES (?, ?, ?, ?, ?, ?)"

Reasons: TypeAlias = dict[Metric, str]


@dataclass(slots=True)
class Recording:
    """What the writer remembers of a run that it records."""

    run: int
    # When each subject was last seen: of a job's many short-lived processes few are left.
    seen: dict[Scope, dict[int, int]] = field(default_factory=lambda: {s: {} for s in Scope})
    reasons: dict[tuple[Scope, int], Reasons] = field(default_factory=dict)
    # Per roll-up level: the oldest tick that it does not hold yet.
    pending: list[int | None] = field(default_factory=lambda: [None] * len(ROLLUPS))
    newest_ms: int = 0

    def stored(self, ticks: Iterable[Tick]) -> None:
        """Remember committed ticks: they wait for being rolled up."""
        for tick in ticks:
            self.newest_ms = max(self.newest_ms, tick.ts_ms)
            for scope, readings in tick.rows.items():
                seen = self.seen[scope]
                for subject in readings:
                    seen[subject] = max(tick.ts_ms, seen.get(subject, 0))
            for place, oldest in enumerate(self.pending):
                if oldest is None or tick.ts_ms < oldest:
                    self.pending[place] = tick.ts_ms


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
        """Take over what is in the file now: the reasons, and the ticks as to be rolled up."""
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
        # Nearly every tick ends here: nothing was unknown, or the same for the same reason.
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

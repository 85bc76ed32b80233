"""A job that starts processes for weeks: its cost does not grow with their number."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.metrics import PROCESS_CPU, PROCESS_RSS, Scope
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.store import Key, retention
from whyidle.monitor.store.schema import DAY_MS, R10

HOUR_MS = 3_600_000
MANY = 3000


def processes(store: Store, count: int) -> list[int]:
    return [
        store.writer.add_process(store.run, pid=pid, start_ticks=1, first_ms=START_MS)
        for pid in range(count)
    ]


def record(store: Store, ts_ms: int, rows: dict[int, Reading]) -> None:
    store.clock.ms = ts_ms
    assert store.writer.append(store.run, Tick(ts_ms, {Scope.PROCESS: rows}))
    store.writer.maintain(ts_ms / 1000)


def short_lived(store: Store, count: int) -> list[int]:
    """Record processes that live for one tick, a hundred at a time."""
    some = processes(store, count)
    for i in range(0, count, 100):
        rows = {s: Reading({PROCESS_CPU: 1.0}, {PROCESS_RSS: "gone"}) for s in some[i : i + 100]}
        record(store, START_MS + i * 10, rows)
    return some


def test_a_minute_does_not_ask_for_each_process(store: Store) -> None:
    short_lived(store, MANY)
    for hour in (1, 2):
        record(store, START_MS + hour * HOUR_MS, {})
    statements: list[str] = []
    store.writer._connection.set_trace_callback(statements.append)
    record(store, START_MS + 2 * HOUR_MS + 60_000, {})
    record(store, START_MS + 9 * DAY_MS, {})
    store.writer._connection.set_trace_callback(None)
    queries = [s for s in statements if s.startswith(("SELECT", "WITH"))]
    assert 0 < len(queries) < 100
    deletes = [s for s in statements if s.startswith("DELETE")]
    assert 0 < len(deletes) <= 2 * retention._SUBJECTS_AT_ONCE


def test_who_has_ended_is_forgotten(store: Store) -> None:
    some = short_lived(store, MANY)
    recording = store.writer._recordings[store.run]
    assert len(recording.seen[Scope.PROCESS]) == len(recording.reasons) == MANY
    record(store, START_MS + HOUR_MS, {some[0]: Reading({PROCESS_CPU: 1.0})})
    record(store, START_MS + HOUR_MS + 60_000, {})
    assert set(recording.seen[Scope.PROCESS]) == {some[0]}
    assert set(recording.reasons) == {(Scope.PROCESS, some[0])}
    with store.reader() as reader:
        found = reader.summary(store.run, {Scope.PROCESS})
        assert {key.subject for key in found} == set(some)
        assert found[Key(Scope.PROCESS, some[0], PROCESS_CPU)].n == 2


def test_who_comes_back_is_remembered(store: Store) -> None:
    (one,) = processes(store, 1)
    key = Key(Scope.PROCESS, one, PROCESS_RSS)
    record(store, START_MS, {one: Reading({}, {PROCESS_RSS: "no permission"})})
    for minute in range(130):
        record(store, START_MS + (minute + 1) * 60_000, {})
    assert not store.writer._recordings[store.run].seen[Scope.PROCESS]
    back = START_MS + 3 * HOUR_MS
    record(store, back, {one: Reading({}, {PROCESS_RSS: "no permission"})})
    with store.reader() as reader:
        assert reader.unknown(store.run)[key] == (START_MS, "no permission")
        for minute in range(130):
            record(store, back + (minute + 1) * 60_000, {})
        record(store, back + 3 * HOUR_MS, {one: Reading({PROCESS_RSS: 5.0})})
        assert reader.unknown(store.run) == {}
        assert reader.latest(store.run)[key].value == 5.0


def test_each_has_its_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_SUBJECTS_AT_ONCE", 3)
    short_lived(store, 10)
    query = f"SELECT count(*) FROM {R10.table(Scope.PROCESS)}"
    left = []
    for minute in range(6):
        record(store, START_MS + 8 * DAY_MS + minute * 60_000, {})
        with closing(sqlite3.connect(store.path)) as connection, connection:
            left.append(connection.execute(query).fetchone()[0])
        connection.close()
    assert left == [7, 4, 1, 0, 0, 0]

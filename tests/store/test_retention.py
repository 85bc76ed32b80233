from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.metrics import GPU_POWER, Scope
from whyidle.monitor.store import Key
from whyidle.monitor.store.schema import DAY_MS, LEVELS, R10, R60, R3600, RAW, Level

HOUR_S = 3600


def oldest(store: Store, level: Level) -> int | None:
    with closing(sqlite3.connect(store.path)) as connection, connection:
        query = f"SELECT min(ts_ms) FROM {level.table(Scope.GPU)}"
        found: int | None = connection.execute(query).fetchone()[0]
    connection.close()
    return found


def sparse(store: Store, days: int) -> None:
    """Record one tick every few minutes: long spans at little cost."""
    step = days * DAY_MS // 500
    for _ in range(500):
        value = {GPU_POWER: store.clock.ms / 1e12}
        assert store.writer.append(store.run, store.tick(store.clock.ms, value))
        store.writer.maintain(store.clock())
        store.clock.ms += step


def minute(store: Store) -> None:
    """Record a tick without values: time goes by with the ticks."""
    store.clock.ms += 60_000
    assert store.writer.append(store.run, store.tick(store.clock.ms))
    store.writer.maintain(store.clock())


def settle(store: Store) -> None:
    for _ in range(200):
        minute(store)


@pytest.mark.parametrize(("days", "gone"), [(2, [RAW]), (8, [RAW, R10]), (91, [RAW, R10, R60])])
def test_each_level_keeps_its_time(store: Store, days: int, gone: list[Level]) -> None:
    sparse(store, days)
    settle(store)
    for level in LEVELS:
        first = oldest(store, level)
        if level in gone:
            assert level.keep_ms is not None
            assert first is None or first >= store.clock.ms - level.keep_ms
        else:
            assert first == START_MS


def test_a_series_goes_on_where_raw_rows_have_gone(store: Store) -> None:
    store.watch(HOUR_S, lambda ms: (ms - START_MS) / 1000)
    store.clock.ms += 2 * DAY_MS
    settle(store)
    store.watch(20, lambda _: 1.0)
    assert oldest(store, RAW) is not None
    with store.reader() as reader:
        found = reader.series(GPU_POWER, [store.gpu], START_MS, START_MS + 600_000, 1000)
        assert [p.mean for p in found[store.gpu]] == [4.5 + 10 * i for i in range(60)]
        summary = reader.summary(store.run)[Key(Scope.GPU, store.gpu, GPU_POWER)]
    assert (summary.n, summary.most, summary.last) == (HOUR_S + 20, HOUR_S - 1, 1.0)


def test_one_of_several_subjects_that_is_older_counts_for_all(store: Store) -> None:
    """The raw rows of both have gone, and only one of them has been there since the beginning."""
    store.watch(HOUR_S, lambda _: 3.0)
    store.clock.ms += 2 * DAY_MS
    settle(store)
    young = store.writer.add_gpu(store.run, idx="1", name="H200")
    store.watch(20, lambda _: 1.0)
    for subjects in ([store.gpu, young], [young, store.gpu]):
        with store.reader() as reader:
            found = reader.series(GPU_POWER, subjects, START_MS, START_MS + 600_000, 1000)
            (only,) = reader.series(GPU_POWER, [young], START_MS, START_MS + 600_000, 1000).items()
        assert [p.mean for p in found[store.gpu]] == [3.0] * 60
        assert (found[young], only) == ([], (young, []))


def test_a_backlog_goes_a_little_at_a_time(store: Store) -> None:
    store.watch(2 * HOUR_S, lambda _: 1.0)
    store.clock.ms += 3 * DAY_MS
    minute(store)
    assert oldest(store, RAW) == START_MS + HOUR_S * 1000
    assert oldest(store, R3600) == START_MS


def test_reasons_that_came_and_went_do_not_pile_up(store: Store) -> None:
    for second in range(100):
        reason = {GPU_POWER: "idle" if second % 2 else "stale"}
        assert store.writer.append(store.run, store.tick(store.clock.ms, {}, reason))
        store.clock.ms += 1000
    store.clock.ms = START_MS + 2 * DAY_MS - 60_000
    minute(store)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        (kept,) = connection.execute("SELECT count(*) FROM unknown").fetchone()
    connection.close()
    assert kept == 1
    with store.reader() as reader:
        assert reader.unknown(store.run)[Key(Scope.GPU, store.gpu, GPU_POWER)].reason == "idle"


def test_a_clock_that_is_set_takes_nothing(store: Store) -> None:
    store.watch(HOUR_S, lambda _: 1.0)
    began = store.clock()
    for i in range(50):
        # The ticks go on as they began, whatever the wall clock says.
        assert store.writer.append(store.run, store.tick(store.clock.ms + i * 1000))
        store.writer.maintain(began + 30 * DAY_MS / 1000 + i * 60)
    assert oldest(store, RAW) == START_MS
    assert oldest(store, R10) == START_MS
    with store.reader() as reader:
        found = reader.summary(store.run)[Key(Scope.GPU, store.gpu, GPU_POWER)]
    assert found.n == HOUR_S


def test_a_clock_that_is_set_back_stops_no_roll_up(store: Store) -> None:
    for i in range(100):
        assert store.writer.append(store.run, store.tick(START_MS + i * 1000, {GPU_POWER: 1.0}))
        store.writer.maintain(START_MS / 1000 - 86_400 + i)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        query = f"SELECT count(*) FROM {R10.table(Scope.GPU)}"
        assert connection.execute(query).fetchone() == (9,)
    connection.close()


def test_a_clock_that_leapt_ahead_takes_nothing(store: Store) -> None:
    store.watch(60, lambda _: 1.0)
    store.clock.ms += 400 * DAY_MS
    store.writer.leapt_ms = 400 * DAY_MS
    assert store.writer.append(store.run, store.tick(store.clock.ms, {GPU_POWER: 1.0}))
    settle(store)
    assert oldest(store, RAW) == START_MS

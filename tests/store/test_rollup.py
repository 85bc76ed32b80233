from __future__ import annotations

import os
import random
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.metrics import GPU_POWER, Scope
from whyidle.monitor.store import Key, Point, Writer
from whyidle.monitor.store.recovery import DIED
from whyidle.monitor.store.schema import R10, R60, R3600, ROLLUPS, Level


def noisy(ms: int) -> float | None:
    rng = random.Random(ms)
    return None if rng.random() < 0.2 or ms // 10_000 % 7 == 0 else rng.random() * 700


def expected(start: int, end: int, width: int) -> list[Point]:
    found: dict[int, list[float]] = defaultdict(list)
    for ms in range(start, end, 1000):
        value = noisy(ms)
        found[ms // width * width] += [] if value is None else [value]
    return [
        Point(ts, sum(v) / len(v), min(v), max(v)) if v else Point(ts, None, None, None)
        for ts, v in sorted(found.items())
    ]


def same(found: list[Point], wanted: list[Point]) -> bool:
    return [p[:1] + p[2:] for p in found] == [p[:1] + p[2:] for p in wanted] and [
        p.mean for p in found
    ] == [None if p.mean is None else pytest.approx(p.mean) for p in wanted]


def stored(path: Path, level: Level) -> list[Point]:
    name = GPU_POWER.column
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute(
            f"SELECT ts_ms, {name}__sum / coalesce({name}__n, ticks), {name}__min, {name}__max"
            f" FROM {level.table(Scope.GPU)} ORDER BY ts_ms"
        ).fetchall()
    connection.close()
    return [Point(*row) for row in rows]


@pytest.mark.parametrize("level", ROLLUPS)
def test_rollups_equal_a_plain_computation(store: Store, level: Level) -> None:
    store.watch(4000, noisy)
    store.writer.end_run(store.run, "done")
    assert same(stored(store.path, level), expected(START_MS, store.clock.ms, level.width_ms))


def test_only_closed_buckets_are_rolled_up(store: Store) -> None:
    store.watch(75, noisy)
    assert [p.ts_ms - START_MS for p in stored(store.path, R10)] == list(range(0, 70_000, 10_000))
    assert [p.ts_ms - START_MS for p in stored(store.path, R60)] == [0]
    assert stored(store.path, R3600) == []


@pytest.mark.parametrize("points", [8, 70, 100, 1000, 10_000])
def test_a_series_is_right_at_every_resolution_while_recording(store: Store, points: int) -> None:
    store.watch(4003, noisy)
    end = store.clock.ms
    with store.reader() as reader:
        found = reader.series(GPU_POWER, [store.gpu], START_MS, end, points)[store.gpu]
    assert len(found) <= points
    width = 1000 if points == 10_000 else found[1].ts_ms - found[0].ts_ms
    assert same(found, expected(START_MS, end, width))


@pytest.mark.parametrize("start", [0, 1, 9_999, 59_000])
@pytest.mark.parametrize("points", [2, 7, 59, 61, 400])
def test_there_are_never_more_points_than_asked_for(store: Store, start: int, points: int) -> None:
    store.watch(3700, noisy)
    span = (START_MS + start, START_MS + start + 3_600_000)
    with store.reader() as reader:
        found = reader.series(GPU_POWER, [store.gpu], *span, points)[store.gpu]
    assert points / 8 <= len(found) <= points


def test_a_summary_covers_the_whole_run(store: Store) -> None:
    store.watch(4003, noisy)
    values = [v for ms in range(START_MS, store.clock.ms, 1000) if (v := noisy(ms)) is not None]
    for _ in range(2):
        with store.reader() as reader:
            found = reader.summary(store.run)[Key(Scope.GPU, store.gpu, GPU_POWER)]
        assert (found.n, found.least, found.most) == (len(values), min(values), max(values))
        assert found.mean == pytest.approx(sum(values) / len(values))
        assert found.last == values[-1]
        # And again, now that nothing is left to the raw rows.
        store.writer.end_run(store.run, "done")


@pytest.mark.parametrize("seconds", [5, 65, 3605])
def test_a_crash_in_mid_bucket_loses_no_rollup(path: Path, seconds: int) -> None:
    child = os.fork()
    if child == 0:
        store = Store(path)
        store.watch(seconds, noisy)
        os._exit(0)  # neither ended nor closed
    assert os.waitpid(child, 0)[1] == 0
    Writer.open(path).close()
    for level in ROLLUPS:
        wanted = expected(START_MS, START_MS + seconds * 1000, level.width_ms)
        assert same(stored(path, level), wanted)
    with closing(sqlite3.connect(path)) as connection, connection:
        ended = connection.execute("SELECT ended_ms, end_reason FROM run").fetchone()
    connection.close()
    assert ended == (START_MS + seconds * 1000 - 1000, DIED)


def test_a_run_of_a_living_recorder_is_left_alone(store: Store) -> None:
    Writer.open(store.path).close()
    with store.reader() as reader:
        assert reader.find("last").ended_ms is None


def test_a_tick_that_comes_late_is_rolled_up_too(store: Store) -> None:
    store.watch(25, lambda _: 1.0)
    late = store.tick(START_MS + 500, {GPU_POWER: 100.0})
    assert store.writer.append(store.run, late)
    store.writer.maintain(store.clock())
    assert stored(store.path, R10)[0].most == 100.0

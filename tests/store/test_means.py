"""Means of many metrics at once: the same as a plain computation, and as fine as a chart."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.store.conftest import START_MS, Store
from tests.store.test_rollup import noisy
from whyidle.monitor.core.metrics import GPU_POWER, GPU_TEMPERATURE, GPU_UTILISATION, Scope
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.store import Totals
from whyidle.monitor.store.schema import RAW

WANTED = (GPU_POWER, GPU_UTILISATION)
MINUTE = 60_000


def plain(start: int, end: int) -> float:
    values = [value for ms in range(start, end, 1000) if (value := noisy(ms)) is not None]
    return sum(values) / len(values)


@pytest.mark.parametrize(("minutes", "points"), [(2, 200), (30, 200), (60, 20), (60, 1)])
def test_a_mean_equals_a_plain_computation(store: Store, minutes: int, points: int) -> None:
    store.watch(4000, noisy)
    end = START_MS + minutes * MINUTE
    with store.reader() as reader:
        found = reader.means(WANTED, [store.gpu], START_MS, end, points)
    assert found == {GPU_POWER: pytest.approx(plain(START_MS, end))}


def test_what_no_rollup_has_yet_counts_too(store: Store) -> None:
    store.watch(3 * 60 + 7, noisy)
    with store.reader() as reader:
        found = reader.means(WANTED, [store.gpu], START_MS, store.clock.ms, 3)
    assert found[GPU_POWER] == pytest.approx(plain(START_MS, store.clock.ms))


def test_several_subjects_are_one(store: Store) -> None:
    other = store.writer.add_gpu(store.run, idx="1", name="H200")
    for gpu, watts in ((store.gpu, 100.0), (store.gpu, 200.0), (other, 600.0)):
        rows = {Scope.GPU: {gpu: Reading({GPU_POWER: watts})}}
        store.writer.append(store.run, Tick(store.clock.ms, rows))
        store.clock.ms += 1000
    with store.reader() as reader:
        together = reader.means(WANTED, [store.gpu, other], START_MS, store.clock.ms, 200)
        nobody = reader.means(WANTED, [], START_MS, store.clock.ms, 200)
    assert together == {GPU_POWER: pytest.approx(300.0)}
    assert nobody == {}


@pytest.mark.parametrize(("late", "points"), [(30, 200), (1800, 60), (1800, 3)])
def test_each_of_several_subjects(store: Store, late: int, points: int) -> None:
    """One of them joined later, so that its roll-ups begin and end elsewhere."""
    store.watch(late, lambda ms: 100.0 + (ms - START_MS) / 1000)
    other = store.writer.add_gpu(store.run, idx="1", name="H200")
    for second in range(late):
        tick = store.tick(store.clock.ms, {GPU_POWER: 50.0})
        tick.rows[Scope.GPU][other] = Reading({GPU_POWER: 500.0 + second, GPU_UTILISATION: 0.5})
        assert store.writer.append(store.run, tick)
        store.writer.maintain(store.clock())
        store.clock.ms += 1000
    asked = (WANTED, [store.gpu, other, 99], START_MS, store.clock.ms, points)
    with store.reader() as reader:
        found = reader.totals(*asked)
        together = reader.means(*asked)
    total = sum(100.0 + i for i in range(late)) + 50.0 * late
    rising = sum(500.0 + i for i in range(late))
    assert found == {
        store.gpu: {GPU_POWER: Totals(2 * late, pytest.approx(total), 50.0, 99.0 + late)},
        other: {
            GPU_POWER: Totals(late, pytest.approx(rising), 500.0, 499.0 + late),
            GPU_UTILISATION: Totals(late, pytest.approx(0.5 * late), 0.5, 0.5),
        },
    }
    assert together[GPU_POWER] == pytest.approx((total + rising) / (3 * late))
    assert found[other][GPU_UTILISATION].mean == pytest.approx(0.5)


def test_what_was_never_known_is_left_out(store: Store) -> None:
    store.watch(20, lambda _: None)
    with store.reader() as reader:
        assert reader.means(WANTED, [store.gpu], START_MS, store.clock.ms, 200) == {}
        assert reader.means(WANTED, [store.gpu], store.clock.ms, store.clock.ms, 200) == {}


def test_a_metric_that_an_older_file_lacks_is_left_out(store: Store) -> None:
    store.watch(20, lambda _: 100.0)
    store.writer.close()
    with closing(sqlite3.connect(store.path)) as connection:
        table = RAW.table(Scope.GPU)
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {GPU_TEMPERATURE.column}")
    with store.reader() as reader:
        asked = (GPU_TEMPERATURE, GPU_POWER)
        found = reader.means(asked, [store.gpu], START_MS, store.clock.ms, 200)
    assert found == {GPU_POWER: pytest.approx(100.0)}

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.errors import Exit, StorageProblem
from whyidle.monitor.core.metrics import GPU_POWER, GPU_XID, METRICS, Scope
from whyidle.monitor.store import Key, Reader, Writer, schema
from whyidle.monitor.store.schema import LEVELS


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def older(path: Path) -> None:
    """Make the file one that was written before there was an XID metric."""
    store = Store(path)
    store.watch(70, lambda _: 5.0)
    store.writer.close()
    drops = []
    for level in LEVELS:
        names = schema.columns(Scope.GPU, level)
        lost = [name for name in names if name.startswith(GPU_XID.column)]
        drops += [f"ALTER TABLE {level.table(Scope.GPU)} DROP COLUMN {name}" for name in lost]
    change(path, *drops)


def test_a_reader_of_an_older_file_misses_only_the_new_metric(path: Path) -> None:
    older(path)
    with Reader.open(path) as reader:
        run = reader.find("last")
        gpu = reader.gpus(run.id)[0].id
        assert {key.metric for key in reader.latest(run.id)} == {GPU_POWER}
        assert {key.metric for key in reader.summary(run.id)} == {GPU_POWER}
        span = (START_MS, START_MS + 70_000)
        assert reader.series(GPU_XID, [gpu], *span, 100) == {gpu: []}
        assert {p.mean for p in reader.series(GPU_XID, [gpu], *span, 5)[gpu]} == {None}


def test_a_writer_adds_the_new_metric(path: Path) -> None:
    older(path)
    store = Store(path)
    tick = store.tick(START_MS, {GPU_XID: 79.0})
    assert store.writer.append(store.run, tick)
    store.writer.end_run(store.run, "done")
    with store.reader() as reader:
        assert reader.summary(store.run)[Key(Scope.GPU, store.gpu, GPU_XID)].most == 79.0
        assert reader.summary(1)[Key(Scope.GPU, 1, GPU_POWER)].mean == 5.0
    store.writer.close()


@pytest.mark.parametrize("opened", [Writer.open, Reader.open])
def test_a_newer_file_is_refused(path: Path, opened: type) -> None:
    Store(path).writer.close()
    change(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(StorageProblem, match="newer whyidle") as caught:
        opened(path)
    assert "Upgrade this whyidle" in caught.value.next_step
    assert caught.value.code == Exit.STORAGE


def test_migrations_run_in_order_and_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(path).writer.close()
    now = schema.VERSION
    steps = {
        now: ("ALTER TABLE run ADD COLUMN colour TEXT",),
        now + 1: ("UPDATE run SET colour = 'green'", "CREATE TABLE extra (id INTEGER PRIMARY KEY)"),
    }
    monkeypatch.setattr(schema, "VERSION", now + 2)
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    for _ in range(2):
        Writer.open(path).close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT colour FROM run").fetchall() == [("green",)]
    assert connection.execute("PRAGMA user_version").fetchone() == (now + 2,)
    connection.close()


def test_a_migration_that_fails_leaves_the_file_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(path).writer.close()
    now = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", now + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {now: ("CREATE TABLE extra (id)", "nonsense")})
    with pytest.raises(StorageProblem):
        Writer.open(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (now,)
    assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'extra'").fetchall() == []
    connection.close()


def test_every_metric_has_its_columns(store: Store) -> None:
    for metric in METRICS:
        names = schema.present(store.writer._connection, f"{metric.scope}_sample")
        assert metric.column in names

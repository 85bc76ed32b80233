from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.metrics import GPU_POWER, Scope, metrics_of
from whyidle.monitor.store import Key, Reader, copy, delete_runs, run_sizes, salvage, shrink


@pytest.fixture
def two(path: Path) -> Path:
    """Two ended runs, the first three times as long."""
    for seconds in (6000, 2000):
        store = Store(path)
        process = store.writer.add_process(store.run, pid=1, start_ticks=2)
        store.writer.add_gpu_process(store.gpu, process)
        store.writer.event(store.run, "note", "hello")
        store.watch(seconds, lambda ms: ms % 977 / 3)
        store.writer.end_run(store.run, "done")
        store.writer.close()
    return path


def test_sizes_add_up(two: Path) -> None:
    first, second = run_sizes(two)
    assert first.rows > 2.5 * second.rows
    assert first.size > 2.5 * second.size
    assert first.size + second.size == pytest.approx(two.stat().st_size, abs=2)


def test_a_deleted_run_leaves_nothing(two: Path) -> None:
    with Reader.open(two) as reader:
        before = reader.summary(2)
    rows = next(size.rows for size in run_sizes(two) if size.run == 1)
    assert delete_runs(two, [1]) == rows
    assert shrink(two) > 0
    with Reader.open(two) as reader:
        assert [run.id for run in reader.runs()] == [2]
        assert reader.summary(2) == before
        assert reader.check() is None
    connection = sqlite3.connect(two)
    for table in ("gpu", "process", "event"):
        assert connection.execute(f"SELECT DISTINCT run FROM {table}").fetchall() == [(2,)]
    assert connection.execute("SELECT count(*) FROM gpu_process").fetchone() == (1,)
    assert connection.execute("SELECT DISTINCT subject FROM gpu_sample").fetchall() == [(2,)]
    connection.close()


def test_shrinking_gives_back_every_free_page(path: Path) -> None:
    store = Store(path)
    values = {metric: i / 7 for i, metric in enumerate(metrics_of(Scope.GPU))}
    ticks = [store.tick(START_MS + second * 1000, values) for second in range(30_000)]
    assert store.writer.append_many(store.run, ticks)
    store.writer.end_run(store.run, "done")
    store.writer.close()
    delete_runs(path, [store.run])
    before = path.stat().st_size
    assert before > 8 << 20
    assert shrink(path) == before - path.stat().st_size
    assert path.stat().st_size < 1 << 20
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)
    connection.close()


def test_the_id_of_a_deleted_run_is_not_given_again(two: Path) -> None:
    delete_runs(two, [1, 2])
    store = Store(two)
    store.writer.close()
    with Reader.open(two) as reader:
        assert [run.id for run in reader.runs()] == [3]


def test_salvage_does_not_give_the_id_of_a_deleted_run_again(two: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    copy(two, other)
    delete_runs(two, [1, 2])
    salvage(other, two)
    with Reader.open(two) as reader:
        assert [run.id for run in reader.runs()] == [3, 4]
        assert [gpu.run for run in (3, 4) for gpu in reader.gpus(run)] == [3, 4]


def test_what_is_being_recorded_is_not_deleted(store: Store) -> None:
    with pytest.raises(UsageProblem, match="still running") as caught:
        delete_runs(store.path, [store.run])
    assert caught.value.next_step == f"End it first: monitor stop {store.run}"
    with pytest.raises(UsageProblem, match="no recording 99"):
        delete_runs(store.path, [99])


def test_a_copy_is_whole_while_recording(store: Store, tmp_path: Path) -> None:
    store.watch(100, lambda _: 3.0)
    into = tmp_path / "copy.db"
    copy(store.path, into)
    with Reader.open(into) as reader:
        assert reader.summary(store.run)[Key(Scope.GPU, store.gpu, GPU_POWER)].n == 100
        assert reader.runs()[0].started_ms == START_MS
    assert into.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageProblem, match="exists already"):
        copy(store.path, into)

"""A full disk, and our own size limit: recording goes on, and the oldest samples make room."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.metrics import GPU_POWER, Scope, metrics_of
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import Reader, Writer
from whyidle.monitor.store.subjects import raw_edge
from whyidle.monitor.store.waiting import QUEUE_TICKS


def occupy(folder: Path) -> Path:
    """Take what is left of the disk, as a checkpoint of the job might."""
    other = folder / "checkpoint.bin"
    free = os.statvfs(folder)
    with other.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
    return other


def record(store: Store, ticks: int, troubles: set[str | None] | None = None) -> list[int]:
    """Record busy ticks; returns those that were acknowledged, and notes what was wrong."""
    acknowledged = []
    for _ in range(ticks):
        ms = store.clock.ms
        values = {metric: ms / 1e12 + i / 7 for i, metric in enumerate(metrics_of(Scope.GPU))}
        if store.writer.append(store.run, store.tick(ms, values)):
            acknowledged.append(ms)
        store.writer.maintain(store.clock())
        if troubles is not None:
            troubles.add(store.writer.trouble)
        store.clock.ms += 1000
    return acknowledged


def check_ring(store: Store, acknowledged: list[int]) -> None:
    newest = store.clock.ms - 1000
    oldest = raw_edge(store.writer._connection, Scope.GPU, "ASC")
    assert oldest is not None
    assert oldest > START_MS
    assert store.writer.evicted > 0
    with store.reader() as reader:
        assert reader.check() is None
        assert {value.ts_ms for value in reader.latest(store.run).values()} == {newest}
        kept = reader.series(GPU_POWER, [store.gpu], oldest, newest + 1, 1_000_000)[store.gpu]
        assert [p.ts_ms for p in kept] == [ms for ms in acknowledged if ms >= oldest]
        assert "disk_full" in {event.kind for event in reader.events(store.run)}


def test_the_size_limit_makes_a_ring(path: Path) -> None:
    store = Store(path, size_cap=2 << 20)
    troubles: set[str | None] = set()
    acknowledged = record(store, 20_000, troubles)
    assert len(acknowledged) == 20_000
    # Between two times that room was made it is not repeated all the time.
    assert any("the oldest samples make room" in str(trouble) for trouble in troubles)
    assert path.stat().st_size <= 2 << 20
    check_ring(store, acknowledged)
    store.writer.close()


def test_a_full_disk_makes_a_ring(small_disk: Path) -> None:
    store = Store(small_disk / DATABASE)
    acknowledged = record(store, 20_000)
    assert len(acknowledged) == 20_000
    assert str(store.writer.trouble).startswith(f"The disk under {small_disk} is full")
    assert store.writer.dropped == 0
    check_ring(store, acknowledged)
    store.writer.end_run(store.run, "done")
    store.writer.close()
    with Reader.open(store.path) as reader:
        assert reader.find("last").end_reason == "done"


def test_others_fill_the_disk_and_leave(small_disk: Path) -> None:
    store = Store(small_disk / DATABASE)
    record(store, 300)
    other = occupy(small_disk)
    acknowledged = record(store, 1000)
    assert len(acknowledged) == 1000
    assert "is full" in str(store.writer.trouble)
    other.unlink()
    record(store, 61)
    assert store.writer.trouble is None
    assert small_disk.joinpath(DATABASE + "-ballast").exists()
    store.writer.close()


def test_a_disk_that_was_full_from_the_start(small_disk: Path) -> None:
    occupy(small_disk)
    with pytest.raises(StorageProblem, match="full") as caught:
        Writer.open(small_disk / DATABASE)
    assert "WHYIDLE_STATE_DIR" in caught.value.next_step


def test_what_cannot_be_stored_waits_and_then_the_oldest_goes(store: Store) -> None:
    store.watch(1, lambda _: 1.0)
    blocker = Writer.open(store.path)
    blocker._connection.execute("BEGIN IMMEDIATE")
    store.writer._connection.execute("PRAGMA busy_timeout = 0")
    for i in range(QUEUE_TICKS + 5):
        tick = store.tick(store.clock.ms + i, {GPU_POWER: 2.0})
        assert not store.writer.append(store.run, tick)
    assert (store.writer.queued, store.writer.dropped) == (QUEUE_TICKS, 5)
    blocker._connection.execute("ROLLBACK")
    blocker.close()
    assert store.writer.append(store.run, store.tick(store.clock.ms + 9999, {GPU_POWER: 3.0}))
    assert store.writer.queued == 0


@pytest.mark.parametrize("poison", [2**70, "high", object()])
def test_a_value_of_the_wrong_kind_costs_its_own_tick(store: Store, poison: object) -> None:
    broken = {GPU_POWER: poison}
    assert not store.writer.append(store.run, store.tick(START_MS, broken))  # type: ignore[arg-type]
    assert "left out" in str(store.writer.trouble)
    store.watch(1, lambda _: 1.0)
    assert (store.writer.dropped, store.writer.trouble) == (1, None)


def test_a_file_that_was_deleted_is_reported(store: Store) -> None:
    store.watch(1, lambda _: 1.0)
    store.path.unlink()
    store.watch(61, lambda _: 1.0)
    assert "was deleted" in str(store.writer.trouble)


def test_ticks_that_wait_at_the_end_do_not_break_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("whyidle.monitor.store.writer.Batch.write", full)
        assert not store.writer.append(store.run, store.tick(store.clock.ms, {GPU_POWER: 1.0}))
        assert store.writer.end_run(store.run, "job ended")
    store.writer.close()
    with store.reader() as reader:
        (run,) = reader.runs()
        assert run.end_reason == "job ended"
        assert reader.latest(store.run)

"""Another process holds the file's lock: ticks wait in memory, the end waits for the lock."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.metrics import GPU_POWER
from whyidle.monitor.store import NewRun
from whyidle.monitor.store.connect import BUSY_MS
from whyidle.monitor.store.guarded_writes import TICK_BUSY_MS


@pytest.fixture
def blocker(store: Store) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_what_is_recorded_meanwhile_is_stored_later(
    store: Store, blocker: sqlite3.Connection
) -> None:
    for i in range(11):
        assert not store.writer.append(
            store.run, store.tick(START_MS + i * 1000, {GPU_POWER: float(i)})
        )
    assert store.writer.queued == 11
    assert not store.writer.event(store.run, "xid", "XID 79")
    store.writer.describe_run(store.run, framework="jax")
    blocker.execute("ROLLBACK")
    assert store.writer.append(store.run, store.tick(START_MS + 11_000, {GPU_POWER: 11.0}))
    assert (store.writer.queued, store.writer.dropped, store.writer.trouble) == (0, 0, None)
    with store.reader() as reader:
        span = (START_MS, START_MS + 12_000, 100)
        found = reader.series(GPU_POWER, [store.gpu], *span)[store.gpu]
        assert [point.mean for point in found] == list(range(12))
        assert [event.text for event in reader.events(store.run)] == ["XID 79"]
        assert reader.find("last").framework == "jax"


def test_changes_of_a_row_stay_in_order(store: Store, blocker: sqlite3.Connection) -> None:
    store.writer.describe_run(store.run, framework="jax")
    blocker.execute("ROLLBACK")
    store.writer.describe_run(store.run, framework="torch")
    store.watch(1, lambda _: 1.0)
    with store.reader() as reader:
        assert reader.find("last").framework == "torch"


def test_an_event_that_can_never_be_stored_holds_nothing_up(store: Store) -> None:
    assert not store.writer.event(store.run, "odd", "odd", data={}, subject=object())  # type: ignore[arg-type]
    store.writer.describe_run(store.run, colour="green")
    assert store.writer.append(store.run, store.tick(START_MS, {GPU_POWER: 1.0}))
    assert store.writer.trouble is None


def test_nor_one_that_came_while_others_waited(store: Store, blocker: sqlite3.Connection) -> None:
    store.writer.describe_run(store.run, framework="jax")
    store.writer.describe_run(store.run, colour="green")
    assert not store.writer.append(store.run, store.tick(START_MS, {GPU_POWER: 1.0}))
    blocker.execute("ROLLBACK")
    for i in range(1, 3):
        store.writer.append(store.run, store.tick(START_MS + i * 1000, {GPU_POWER: 1.0}))
    assert (store.writer.queued, store.writer.dropped, store.writer.trouble) == (0, 0, None)


def test_only_what_has_no_second_chance_waits_for_locks(store: Store) -> None:
    # Before each transaction: how long it waits for the lock.
    waits: list[int] = []
    now = TICK_BUSY_MS

    def note(statement: str) -> None:
        nonlocal now
        if statement.startswith("PRAGMA busy_timeout ="):
            now = int(statement.rpartition(" ")[2])
        if statement == "BEGIN IMMEDIATE":
            waits.append(now)

    connection = store.writer._connection
    assert connection.execute("PRAGMA busy_timeout").fetchone() == (TICK_BUSY_MS,)
    connection.set_trace_callback(note)
    store.watch(130, lambda _: 1.0)
    store.writer.event(store.run, "note", "hello")
    assert set(waits) == {TICK_BUSY_MS}
    waits.clear()
    run = store.writer.begin_run(NewRun())
    store.writer.end_run(run, "done")
    assert set(waits) == {BUSY_MS}
    waits.clear()
    store.watch(1, lambda _: 1.0)
    assert set(waits) == {TICK_BUSY_MS}
    waits.clear()
    store.writer.close()
    assert set(waits) == {BUSY_MS}


def test_the_end_waits_for_the_lock(store: Store, blocker: sqlite3.Connection) -> None:
    assert not store.writer.append(store.run, store.tick(START_MS, {GPU_POWER: 1.0}))
    release = threading.Timer(TICK_BUSY_MS * 6 / 1000, blocker.execute, ["ROLLBACK"])
    release.start()
    assert store.writer.end_run(store.run, "done")
    release.join()
    with store.reader() as reader:
        assert reader.find("last").end_reason == "done"
        assert reader.latest(store.run)


def test_closing_twice_is_harmless(path: Path) -> None:
    store = Store(path)
    store.writer.close()
    store.writer.close()


def test_a_viewer_in_the_recorders_own_process_leaves_its_log_to_it(store: Store) -> None:
    other = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM run')"
    store.watch(3, float)
    for _ in range(2):
        # Closed in our process, every lock on a file is gone: the last one then removes the log.
        store.reader().close()
        subprocess.run([sys.executable, "-c", other, store.path], check=True)
        assert store.path.with_name(f"{store.path.name}-wal").exists()
        store.watch(3, float)
    count = "SELECT count(*) FROM gpu_sample"
    rows = (
        f"import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute({count!r}).fetchone()[0])"
    )
    counted = subprocess.run(
        [sys.executable, "-c", rows, store.path], check=True, capture_output=True
    )
    assert int(counted.stdout) == 9

"""Traces among the recordings: old files, full disks, locks, kills, and what deletes them."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.store.conftest import START_MS, Store
from tests.store.test_crash import start as start_recorder
from tests.store.test_full import occupy, record
from tests.store.test_open import damage
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.metrics import GPU_POWER, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import Key, Reader, Writer, delete_runs, run_sizes, salvage, schema
from whyidle.monitor.store.blocks import cut, uncut
from whyidle.monitor.store.prune import copy
from whyidle.monitor.store.timelines import SHARE
from whyidle.monitor.store.traces import NewTrace, TraceReader, put

VERSION_1 = Path(__file__).parent / "version_1.sql"


def a_trace(run: int | None = None, *, events: int = 100, path: str = "/a/trace.json") -> NewTrace:
    """A trace that compresses badly: an event takes about eight bytes."""
    rng = np.random.default_rng(events)
    start = np.sort(rng.integers(0, 1 << 62, events))
    columns = {"start": start, "end": start + rng.integers(0, 100, events)}
    slices = [{"device": 0, "budget": "budget", "slice": "compute", "detail": "", "ns": 7}]
    return NewTrace(
        run=run,
        format="kineto",
        path=path,
        header={"events": events},
        rows={
            "trace_device": [{"device": 0, "kind": "gpu", "idx": "0", "span_ns": 9}],
            "trace_slice": slices,
            "trace_kernel": [{"place": 0, "name": "gemm", "count": 3, "total_ns": 5}],
            "trace_step": [{"ordinal": i, "start": i, "stop": i + 1} for i in range(3)],
        },
        blocks=list(cut("op", [columns])),
        ts_ms=START_MS,
    )


def events_of(path: Path, trace: int) -> int:
    """Open every block; returns how many events they hold."""
    reader = TraceReader.open(path)
    try:
        opened = [uncut(reader.data(block.id)) for block in reader.blocks(trace)]
        return sum(len(columns["start"]) for columns in opened)
    finally:
        reader.close()


def traces_of(path: Path, run: int | None = None) -> list[int]:
    reader = TraceReader.open(path)
    try:
        return [row.id for row in reader.traces(run)]
    finally:
        reader.close()


def count(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    try:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found
    finally:
        connection.close()


@pytest.fixture
def old(path: Path) -> Path:
    """A store that version 1 wrote."""
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1.read_text())
    connection.close()
    return path


# Versions -----------------------------------------------------------------------------------------
def test_an_old_file_is_read_and_has_no_traces(old: Path) -> None:
    assert traces_of(old) == []
    assert traces_of(old, 1) == []
    reader = TraceReader.open(old)
    assert (reader.blocks(1), reader.rows("trace_step", 1, ["start"])) == ([], [])
    with pytest.raises(UsageProblem, match="no stored trace 1"):
        reader.trace(1)
    reader.close()
    assert [size.run for size in run_sizes(old)] == [1]


def test_an_old_file_is_brought_up_to_date_by_who_writes(old: Path, tmp_path: Path) -> None:
    kept = put(old, a_trace(1))
    assert (traces_of(old, 1), events_of(old, kept)) == ([kept], 100)
    with Reader.open(old) as reader:
        assert reader.check() is None
        assert reader.summary(1)[Key(Scope.GPU, 1, GPU_POWER)].mean == 102.0
    fresh = tmp_path / "fresh" / DATABASE
    Store(fresh).writer.close()
    assert tables(old) == tables(fresh)
    assert written(old) == written(fresh)


def test_rows_that_an_old_file_has_are_kept(old: Path) -> None:
    connection = sqlite3.connect(old)
    connection.execute("INSERT INTO trace VALUES (7, 1, 5, 'kineto', '/a', '{}')")
    connection.commit()
    connection.close()
    assert put(old, a_trace(1)) == 8
    assert traces_of(old) == [7, 8]


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    connection = sqlite3.connect(path)
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    found = {
        name: sorted(row[1:] for row in connection.execute(f"PRAGMA table_xinfo({name})"))
        for (name,) in names
    }
    version = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    assert version == (schema.VERSION,)
    return found


def written(path: Path) -> set[str]:
    """Tables, but those of samples, to which columns are added, and indexes; as they were made."""
    connection = sqlite3.connect(path)
    samples = {level.table(scope) for level in schema.LEVELS for scope in Scope}
    rows = connection.execute("SELECT tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    found = {sql for name, sql in rows if name not in samples}
    connection.close()
    return found


def test_a_newer_file_is_refused(store: Store) -> None:
    store.writer.close()
    connection = sqlite3.connect(store.path)
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    for use in (lambda: put(store.path, a_trace()), lambda: TraceReader.open(store.path)):
        with pytest.raises(StorageProblem, match="newer whyidle"):
            use()


def test_a_damaged_file_has_lost_the_run(path: Path) -> None:
    store = Store(path)
    store.watch(600, lambda _: 1.0)
    store.writer.close()
    damage(path, 0.8, 0.9)
    with pytest.raises(StorageProblem, match="were damaged; they now lie in") as caught:
        put(path, a_trace(store.run))
    assert "doctor --salvage" in caught.value.next_step
    assert put(path, a_trace()) == 1


# What belongs to what -----------------------------------------------------------------------------
def test_rows_can_be_asked_for_by_sql(store: Store) -> None:
    put(store.path, a_trace(store.run))
    connection = sqlite3.connect(store.path)
    found = connection.execute(
        "SELECT trace.run, idx, slice, ns FROM trace JOIN trace_device ON trace = trace.id"
        " JOIN trace_slice USING (trace, device)"
    ).fetchall()
    connection.close()
    assert found == [(store.run, "0", "compute", 7)]


def test_a_run_that_there_is_not(store: Store) -> None:
    with pytest.raises(UsageProblem, match="no recording '99'") as caught:
        put(store.path, a_trace(99))
    assert caught.value.next_step == "List them: monitor runs"
    with pytest.raises(UsageProblem, match="no recording '99'"):
        traces_of(store.path, 99)
    assert count(store.path, "trace_block") == 0


def test_a_file_that_is_viewed_again_replaces_itself(store: Store) -> None:
    mine = [put(store.path, a_trace(store.run)) for _ in range(2)]
    other = put(store.path, a_trace(path="/another.json"))
    again = [put(store.path, a_trace()) for _ in range(3)]
    assert traces_of(store.path) == [*mine, other, again[-1]]
    assert count(store.path, "trace_step") == 4 * 3


def test_half_characters_in_names_are_kept_as_escapes(store: Store) -> None:
    odd = {"place": 0, "name": "k\ud800", "count": 1, "total_ns": 1}
    new = NewTrace(
        run=None,
        format="kineto",
        path="/a\udcff",
        header={"x": "\ud800"},
        rows={"trace_kernel": [odd]},
    )
    reader = TraceReader.open(store.path)
    row = reader.trace(put(store.path, new))
    assert (row.path, row.header) == ("/a\udcff", {"x": "\ud800"})
    assert reader.rows("trace_kernel", row.id, ["name"]) == [("k\\ud800",)]
    reader.close()


@pytest.mark.parametrize("name", ["/a\udcff\\udcff", "/a\\\\b\\", "/\\\udc80\\n", "/é", "/\\ud800"])
def test_any_path_comes_back(store: Store, name: str) -> None:
    mine = put(store.path, a_trace(store.run, path=name))
    loose = [put(store.path, a_trace(path=name)) for _ in range(2)][-1]
    reader = TraceReader.open(store.path)
    assert [(row.id, row.path) for row in reader.traces()] == [(mine, name), (loose, name)]
    reader.close()


def test_a_deleted_run_takes_its_traces_with_it(path: Path) -> None:
    runs = []
    for _ in range(2):
        store = Store(path)
        runs.append(store.run)
        store.watch(5, lambda _: 1.0)
        store.writer.end_run(store.run, "done")
        store.writer.close()
    kept = {run: put(path, a_trace(run, events=1000 * run)) for run in runs}
    loose = put(path, a_trace())
    delete_runs(path, runs[:1])
    assert traces_of(path) == [kept[runs[1]], loose]
    for table in schema.TRACE_TABLES:
        connection = sqlite3.connect(path)
        left = {row[0] for row in connection.execute(f"SELECT trace FROM {table}")}
        connection.close()
        assert left == {kept[runs[1]], loose}


def test_what_is_open_never_becomes_anothers(store: Store) -> None:
    first = put(store.path, a_trace())
    reader = TraceReader.open(store.path)
    (block, *_) = reader.blocks(first)
    # It takes the place of the first, which was the last of all.
    second = put(store.path, a_trace(events=50))
    assert second > first
    assert [b.id for b in reader.blocks(second)] > [block.id]
    with pytest.raises(StorageProblem, match="made room for another"):
        reader.data(block.id)
    with pytest.raises(UsageProblem, match=f"no stored trace {first}"):
        reader.trace(first)
    reader.close()


def test_salvage_gives_no_id_again(store: Store, tmp_path: Path) -> None:
    store.writer.end_run(store.run, "done")
    put(store.path, a_trace(store.run))
    into = tmp_path / "new" / DATABASE
    gone = [put(into, a_trace()) for _ in range(3)][-1]
    connection = sqlite3.connect(into)
    for table in ("trace", "trace_block"):
        connection.execute(f"DELETE FROM {table}")
    connection.commit()
    connection.close()
    salvage(store.path, into)
    assert traces_of(into) == [gone + 1]
    assert events_of(into, gone + 1) == 100
    assert put(into, a_trace()) == gone + 2


def test_a_run_is_as_large_as_its_traces(path: Path) -> None:
    for _ in range(2):
        store = Store(path)
        store.watch(100, lambda _: 1.0)
        store.writer.end_run(store.run, "done")
        store.writer.close()
    put(path, a_trace(2, events=100_000))
    first, second = run_sizes(path)
    assert second.size - first.size > 400_000
    assert first.size + second.size == pytest.approx(path.stat().st_size, abs=2)


def test_a_copy_has_the_traces(store: Store, tmp_path: Path) -> None:
    kept = put(store.path, a_trace(store.run))
    copy(store.path, tmp_path / "copy.db")
    assert events_of(tmp_path / "copy.db", kept) == 100


def test_what_is_readable_of_traces_is_salvaged(path: Path) -> None:
    store = Store(path)
    store.writer.end_run(store.run, "done")
    store.writer.close()
    for _ in range(3):
        put(path, a_trace(store.run, events=200_000))
    damage(path, 0.5, 0.52)
    with Writer.open(path) as writer:
        aside = writer.moved_aside
    assert aside is not None
    fresh = Store(path)
    fresh.writer.close()
    own = put(path, a_trace(fresh.run, events=77))
    salvage(aside, path)
    with Reader.open(path) as reader:
        (run,) = (r.id for r in reader.runs() if r.id != fresh.run)
    assert traces_of(path, fresh.run) == [own]
    assert events_of(path, own) == 77
    found = [events_of(path, trace) for trace in traces_of(path, run)]
    assert len(found) == 3
    assert min(found) < 200_000
    assert sorted(found)[1:] == [200_000] * 2


def test_an_old_file_is_salvaged(old: Path, tmp_path: Path) -> None:
    into = tmp_path / "new" / DATABASE
    assert salvage(old, into)["gpu_sample"] == 5
    assert traces_of(into) == []


# Room ---------------------------------------------------------------------------------------------
def test_timelines_are_a_ring_of_their_own(store: Store) -> None:
    cap = 8 << 20
    kept = [put(store.path, a_trace(store.run, events=100_000, path=str(i)), cap) for i in range(6)]
    reader = TraceReader.open(store.path)
    rows = reader.traces()
    reader.close()
    assert [row.id for row in rows] == kept
    held = [row.size for row in rows]
    assert held[0] == 0 < held[-1]
    assert held == sorted(held)
    assert 0.5 * SHARE * cap < sum(held) <= SHARE * cap
    # Its summary is still there.
    assert count(store.path, "trace_slice") == 6
    assert events_of(store.path, kept[0]) == 0


def test_a_new_timeline_displaces_samples_and_no_tick_has_to(path: Path) -> None:
    store = Store(path, size_cap=2 << 20)
    record(store, 12_000)
    before = store.writer.evicted
    kept = put(path, a_trace(store.run, events=40_000), 2 << 20)
    assert events_of(path, kept) == 40_000
    acknowledged = record(store, 200)
    assert len(acknowledged) == 200
    assert store.writer.evicted == before
    assert path.stat().st_size <= 2 << 20
    # Samples that need room do not take it from a timeline within its share.
    record(store, 12_000)
    assert store.writer.evicted > before
    assert events_of(path, kept) == 40_000
    store.writer.close()
    with Reader.open(path) as reader:
        assert reader.check() is None


def test_timelines_beyond_their_share_go_before_samples(path: Path) -> None:
    kept = put(path, a_trace(events=200_000))
    store = Store(path, size_cap=2 << 20)
    acknowledged = record(store, 2_000)
    assert len(acknowledged) == 2_000
    assert events_of(path, kept) == 0
    with store.reader() as reader:
        assert reader.latest(store.run)
    assert count(path, "gpu_sample") == 2_000
    store.writer.close()


def test_a_full_disk_refuses_a_trace_and_not_a_tick(small_disk: Path) -> None:
    store = Store(small_disk / DATABASE)
    record(store, 300)
    with pytest.raises(StorageProblem, match="too full for 1 MB more") as caught:
        put(store.path, a_trace(store.run, events=200_000))
    assert caught.value.next_step.endswith("monitor prune")
    other = occupy(small_disk)
    with pytest.raises(StorageProblem, match="full"):
        put(store.path, a_trace(store.run))
    other.unlink()
    assert len(record(store, 100)) == 100
    assert (store.writer.evicted, store.writer.dropped) == (0, 0)
    kept = put(store.path, a_trace(store.run))
    assert events_of(store.path, kept) == 100
    store.writer.close()


def test_a_disk_that_fills_meanwhile_costs_nothing(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(small_disk / DATABASE)
    record(store, 300)
    monkeypatch.setattr("whyidle.monitor.store.disk_quota.DiskQuota.reserve", lambda *_: None)
    with pytest.raises(StorageProblem, match="is full"):
        put(store.path, a_trace(store.run, events=400_000))
    assert len(record(store, 100)) == 100
    assert store.writer.evicted == 0
    assert (traces_of(store.path), count(store.path, "trace_block")) == ([], 0)
    store.writer.close()


def test_more_than_the_size_limit_holds_is_refused(store: Store) -> None:
    with pytest.raises(StorageProblem, match="fill their size limit"):
        put(store.path, a_trace(events=400_000), 1 << 20)


# Others at the same file --------------------------------------------------------------------------
@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyidle.monitor.store.connect.BUSY_MS", 50)


@pytest.mark.usefixtures("impatient")
def test_a_lock_that_does_not_go_is_reported(store: Store) -> None:
    blocker = sqlite3.connect(store.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageProblem, match=r"holds .* for too long"):
        put(store.path, a_trace())
    blocker.close()


def test_a_recorder_at_full_speed_and_traces_share_a_file(path: Path) -> None:
    recorder = start_recorder(path, 10_000)
    assert recorder.stdout is not None
    assert recorder.stdout.readline()
    kept = [put(path, a_trace(1, events=60_000)) for _ in range(5)]
    recorder.communicate()
    assert recorder.returncode == 0
    with Reader.open(path) as reader:
        assert reader.check() is None
        assert reader.find("last").end_reason == "done"
        assert {found.n for found in reader.summary(1).values()} == {10_000}
        assert [e.kind for e in reader.events(1)] == []
    assert [events_of(path, trace) for trace in kept] == [60_000] * 5


KEEPER = """
import sys
from pathlib import Path
from tests.store.test_traces import a_trace
from whyidle.monitor.store.traces import put
for i in range(1000):
    print(put(Path(sys.argv[1]), a_trace(events=70_000 + i, path=str(i))), flush=True)
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_trace_is_there_or_not_whenever_we_are_killed(path: Path, seed: int) -> None:
    command = [sys.executable, "-c", KEEPER, str(path)]
    keeper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert keeper.stdout is not None
    with keeper:
        for _ in range(2):
            assert keeper.stdout.readline()
        # In the middle of anything: no print shows it.
        with pytest.raises(subprocess.TimeoutExpired):
            keeper.wait(random.Random(seed).random() / 20)
        keeper.send_signal(signal.SIGKILL)
        printed = [int(line) for line in keeper.stdout.read().split()]
    with Reader.open(path) as reader:
        assert reader.check() is None
    found = traces_of(path)
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= max(printed, default=2)
    assert [events_of(path, trace) for trace in found] == [70_000 + i for i in range(len(found))]
    assert count(path, "trace_slice") == len(found)
    assert events_of(path, put(path, a_trace())) == 100


def test_what_records_does_not_import_numpy() -> None:
    code = "import sys, whyidle.monitor.store, whyidle.monitor.recording.session as s; \
print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_stored_traces_are_nobody_elses(path: Path) -> None:
    put(path, a_trace())
    assert [p.stat().st_mode & 0o77 for p in path.parent.iterdir()] == [0, 0]

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.metrics import GPU_POWER
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import Reader, Writer, run_sizes, salvage, shrink


def damage(path: Path, first: float, last: float) -> None:
    """Overwrite a part of the file's pages with noise."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        for place in range(int(size * first) // 4096 * 4096, int(size * last), 4096):
            file.seek(place)
            file.write(b"\xa5" * 4096)


def test_nothing_to_read(path: Path) -> None:
    with pytest.raises(StorageProblem, match="no recordings") as caught:
        Reader.open(path)
    assert caught.value.next_step.endswith("monitor attach PID")


@pytest.mark.parametrize("read", [Reader.open, run_sizes, shrink])
def test_an_empty_file_has_no_recordings(path: Path, read: Callable[[Path], object]) -> None:
    path.parent.mkdir()
    path.touch()
    with pytest.raises(StorageProblem, match=r"no recordings: .* is empty") as caught:
        read(path)
    assert caught.value.next_step.endswith("monitor attach PID")


def test_a_file_without_tables_has_no_recordings(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert path.stat().st_size
    with pytest.raises(StorageProblem, match="no recordings"):
        Reader.open(path)


def test_a_writer_begins_in_an_empty_file(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    store = Store(path)
    store.watch(3, lambda _: 1.0)
    store.writer.close()
    with Reader.open(path) as reader:
        assert reader.latest(store.run)
    with closing(sqlite3.connect(path)) as connection, connection:
        # Incremental: without it the space of deleted recordings would never be given back.
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    connection.close()


@pytest.mark.parametrize("opened", [Writer.open, Reader.open])
def test_another_file_is_refused_and_left_alone(path: Path, opened: type) -> None:
    path.parent.mkdir()
    path.write_text("Dear diary, this is no database. " * 100)
    with pytest.raises(StorageProblem, match="not a SQLite database"):
        opened(path)
    assert path.read_text().startswith("Dear diary")


@pytest.mark.parametrize("opened", [Writer.open, Reader.open])
def test_a_database_of_another_program_is_refused(path: Path, opened: type) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    with pytest.raises(StorageProblem, match="another program"):
        opened(path)


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageProblem):
        Writer.open(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageProblem) as caught:
        Writer.open(tmp_path / "file" / DATABASE)
    assert "WHYIDLE_STATE_DIR" in caught.value.next_step


def test_names_with_odd_characters(tmp_path: Path) -> None:
    store = Store(tmp_path / "a b?c#d%41" / DATABASE)
    store.watch(1, lambda _: 1.0)
    with store.reader() as reader:
        assert len(reader.runs()) == 1
    store.writer.close()
    assert store.path.exists()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that even root cannot write to, with a store that was closed."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "mounted"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        store = Store(folder / DATABASE)
        store.watch(20, lambda _: 7.0)
        store.writer.close()
        for suffix in ("-wal", "-shm"):
            store.path.with_name(DATABASE + suffix).unlink(missing_ok=True)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield store.path
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_read_only_folder_is_read(read_only: Path) -> None:
    with Reader.open(read_only) as reader:
        run = reader.find("last")
        assert [value.value for value in reader.latest(run.id).values()] == [7.0]


def test_a_read_only_folder_is_not_written(read_only: Path) -> None:
    with pytest.raises(StorageProblem) as caught:
        Writer.open(read_only)
    assert "WHYIDLE_STATE_DIR" in caught.value.next_step


def test_a_damaged_file_makes_way(path: Path) -> None:
    store = Store(path)
    store.watch(600, lambda _: 1.0)
    store.writer.close()
    damage(path, 0.8, 0.9)
    with Writer.open(path) as writer:
        aside = writer.moved_aside
        assert aside is not None
        assert aside.name.startswith(f"{DATABASE}.damaged-")
        assert str(aside) in str(writer.trouble)
    with Reader.open(path) as reader:
        assert (reader.runs(), reader.check()) == ([], None)


def test_a_damaged_schema_is_reported_to_a_reader(path: Path) -> None:
    Store(path).writer.close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * 3996)
    with pytest.raises(StorageProblem, match="damaged") as caught:
        Reader.open(path)
    assert caught.value.next_step


def test_what_is_readable_is_salvaged(path: Path) -> None:
    store = Store(path)
    store.watch(7200, lambda ms: (ms - START_MS) / 1000)
    store.writer.close()
    damage(path, 0.5, 0.55)
    with Writer.open(path) as writer:
        aside = writer.moved_aside
    assert aside is not None
    # Into a store that meanwhile has a run of its own, whose ids must not be mixed up.
    fresh = Store(path)
    fresh.watch(5, lambda _: -1.0)
    copied = salvage(aside, path)
    assert 7200 * 0.5 < copied["gpu_sample"] < 7200
    with Reader.open(path) as reader:
        assert reader.check() is None
        old, new = (reader.gpus(run.id)[0].id for run in reversed(reader.runs()))
        span = (START_MS, START_MS + 7_200_000)
        found = reader.series(GPU_POWER, [old, new], *span, 10_000)
        assert [point.mean for point in found[new]] == [-1.0] * 5
        assert len(found[old]) == copied["gpu_sample"]
        assert all(point.mean == (point.ts_ms - START_MS) / 1000 for point in found[old])
    fresh.writer.close()


def test_salvage_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageProblem, match="does not exist"):
        salvage(tmp_path / "none", tmp_path / DATABASE)

"""Whatever state a store is in, each page says what is and what to do: never a traceback."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.dashboard.apps import app
from tests.dashboard.gpu_jobs import job
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import NewRun, Writer, delete_runs

BOTH = pytest.mark.parametrize("page", ["now", "memory"])
DEFECT = "could not be drawn"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "state" / DATABASE


def recorded(store: Path, **options: object) -> int:
    made = job(store, seconds=30, **options)  # type: ignore[arg-type]
    made.end()
    return made.run


@BOTH
def test_without_a_store_it_says_how_to_record(store: Path, page: str) -> None:
    words = app(store, page).words
    assert "Nothing is recorded yet" in words
    assert "monitor attach PID" in words


@BOTH
def test_a_store_that_comes_while_the_page_waits_is_shown(store: Path, page: str) -> None:
    shown = app(store, page)
    recorded(store)
    assert "GPU memory" in shown.again().words


def test_an_empty_file_says_how_to_record(store: Path) -> None:
    store.parent.mkdir()
    store.touch()
    assert "monitor attach PID" in app(store).words


def test_a_store_without_runs_says_how_to_record(store: Path) -> None:
    Writer.open(store).close()
    assert "Nothing is recorded yet" in app(store).words


@BOTH
def test_a_run_without_ticks_says_what_was_never_read(store: Path, page: str) -> None:
    with Writer.open(store) as writer:
        writer.end_run(writer.begin_run(NewRun(label="short")), "stopped")
    words = app(store, page).words
    assert "no GPU" in words
    assert DEFECT not in words


@BOTH
def test_a_run_that_has_just_begun_is_drawn(store: Path, page: str) -> None:
    with Writer.open(store) as writer:
        writer.begin_run(NewRun(label="young"))
    words = app(store, page).words
    assert "recording" in words
    assert DEFECT not in words


@BOTH
def test_a_finished_run_is_drawn_whole(store: Path, page: str) -> None:
    recorded(store)
    words = app(store, page).words
    assert "job ended: exit code 0" in words
    assert DEFECT not in words


@BOTH
def test_a_killed_recorder_is_reported_and_its_run_shown(store: Path, page: str) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    made = job(store, seconds=30, recorder_pid=int(gone.stdout), recorder_start_ticks=1)
    made.writer.close()
    words = app(store, page).words
    assert "its recorder was killed" in words
    assert "GPU memory" in words
    assert DEFECT not in words


def test_a_recorder_of_another_container_is_not_called_dead(store: Path) -> None:
    made = job(store, seconds=30, recorder_namespace="pid:[1]")
    made.writer.close()
    assert "its recorder is elsewhere" in app(store).words


def test_a_recorder_that_is_silent_is_reported(store: Path) -> None:
    made = job(store, seconds=60, ago=30)
    assert "The recorder has been silent for 3" in app(store).words
    made.end()


@BOTH
def test_a_lost_gpu_is_shown_as_lost(store: Path, page: str) -> None:
    recorded(store, lost=10)
    words = app(store, page).words
    assert "GPU lost" in words
    assert "GPU 1 is lost." in words


@BOTH
def test_a_machine_without_gpu_shows_what_there_is(store: Path, page: str) -> None:
    with Writer.open(store) as writer:
        problem = "There is no NVIDIA driver library here."
        run = writer.begin_run(NewRun(info={"gpu_problem": problem, "gpus": []}))
        writer.end_run(run, "stopped")
    words = app(store, page).words
    assert "There is no NVIDIA driver library here." in words
    assert DEFECT not in words


@BOTH
def test_a_file_of_another_kind_is_reported(store: Path, page: str) -> None:
    store.parent.mkdir()
    store.write_bytes(b"no database at all" * 400)
    assert "is not a SQLite database" in app(store, page).words


@BOTH
def test_a_damaged_store_is_reported(store: Path, page: str) -> None:
    recorded(store)
    size = store.stat().st_size
    with store.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    words = app(store, page).words
    assert "damaged" in words
    assert DEFECT not in words


@BOTH
def test_a_store_of_a_newer_version_is_reported(store: Path, page: str) -> None:
    recorded(store)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()
    assert "Upgrade this whyidle, or set WHYIDLE_STATE_DIR." in app(store, page).words


@BOTH
def test_a_store_that_is_deleted_under_the_page_is_reported(store: Path, page: str) -> None:
    recorded(store)
    shown = app(store, page)
    for file in store.parent.glob(f"{DATABASE}*"):
        file.unlink()
    assert "Nothing is recorded yet" in shown.again().words


@BOTH
def test_a_store_that_is_replaced_under_the_page_shows_the_new_one(store: Path, page: str) -> None:
    recorded(store, label="old")
    shown = app(store, page)
    for file in store.parent.glob(f"{DATABASE}*"):
        file.unlink()
    recorded(store, script="other.py")
    assert "other.py" in shown.again().words


@BOTH
def test_a_run_that_is_deleted_while_it_is_shown_is_reported(store: Path, page: str) -> None:
    recorded(store)
    kept = recorded(store)
    shown = app(store, page, run="1")
    assert "GPU" in shown.words
    delete_runs(store, [1])
    shown.again()
    assert "There is no recording 1 here" in shown.words
    shown.test.sidebar.selectbox[0].select(str(kept)).run()
    assert "GPU memory" in shown.words


@BOTH
def test_a_link_to_a_run_that_is_gone_is_reported(store: Path, page: str) -> None:
    recorded(store)
    words = app(store, page, run="77").words
    assert "There is no recording 77 here" in words
    assert "monitor runs" in words


def test_a_link_to_a_run_that_the_picker_no_longer_lists_still_opens(store: Path) -> None:
    recorded(store, script="oldest.py")
    with Writer.open(store) as writer:
        for _ in range(205):
            writer.end_run(writer.begin_run(NewRun()), "stopped")
    assert "oldest.py" in app(store, run="1").words

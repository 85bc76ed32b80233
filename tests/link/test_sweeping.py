"""What killed agents left is removed, and nothing else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whyidle.monitor.link.sweeping import STALE_SECONDS, sweep

# No kernel gives such a pid.
GONE = 2**22 + 1


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    handle = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield handle
    os.close(handle)


def age(path: Path) -> None:
    then = time.time() - 2 * STALE_SECONDS
    os.utime(path, (then, then), follow_symlinks=False)


def left(path: Path, *names: str) -> None:
    for name in names:
        (path / name).write_text("")
        age(path / name)


def listen(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(path))
    found.listen()
    age(path)
    return found


def clear(folder: int, uid: int | None = None) -> None:
    sweep(folder, os.geteuid() if uid is None else uid, "/proc")


def test_what_the_dead_left_goes(tmp_path: Path, folder: int) -> None:
    listen(tmp_path / f"{GONE}.sock").close()
    left(tmp_path, f"{GONE}.spool", f"{GONE}.py", f"{os.getpid()}.spool", "notes.txt", "1x.spool")
    clear(folder)
    kept = {f"{os.getpid()}.spool", "notes.txt", "1x.spool"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_traces_that_nobody_fetched_go_with_the_rest(tmp_path: Path, folder: int) -> None:
    left(tmp_path, f"{GONE}.trace-1", f"{GONE}.trace-2.tmp", f"{GONE}.trace-notes")
    clear(folder)
    assert [path.name for path in tmp_path.iterdir()] == [f"{GONE}.trace-notes"]


def test_who_answers_lives_wherever_its_pid_is(tmp_path: Path, folder: int) -> None:
    left(tmp_path, f"{GONE}.spool")
    with listen(tmp_path / f"{GONE}.sock"):
        clear(folder)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_young_or_anothers_or_no_file_stays(tmp_path: Path, folder: int) -> None:
    (tmp_path / f"{GONE}.spool").write_text("")
    (tmp_path / f"{GONE + 1}.spool").symlink_to("/etc/hostname")
    age(tmp_path / f"{GONE + 1}.spool")
    left(tmp_path, f"{GONE + 2}.spool")
    (tmp_path / f"{GONE + 3}.spool").mkdir()
    age(tmp_path / f"{GONE + 3}.spool")
    clear(folder, uid=os.geteuid() + 1)
    assert len(list(tmp_path.iterdir())) == 4
    clear(folder)
    assert not (tmp_path / f"{GONE + 2}.spool").exists()
    assert len(list(tmp_path.iterdir())) == 3

"""Where sockets lie: for one user alone, whatever lay there before, and nothing is left behind."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.control.conftest import Puppet, Recorder, descriptors
from whyidle.monitor.control import place
from whyidle.monitor.control.server import Server
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import NewRun, Writer

answer = Puppet().answer


def names(store: Path) -> list[str]:
    return sorted(path.name for path in (store.parent / place.FOLDER).iterdir())


def test_nobody_else_may_come_in(recorder: Recorder) -> None:
    folder = recorder.socket.parent.stat()
    assert stat.S_IMODE(folder.st_mode) == 0o700
    assert stat.S_IMODE(recorder.socket.stat().st_mode) == 0o600


def test_an_umask_that_gives_all_gives_nothing(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        server = Server.open(tmp_path / DATABASE, 1, answer)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / place.FOLDER).stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / place.FOLDER / "1.sock").stat().st_mode) == 0o600
    server.close()


def test_a_folder_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / place.FOLDER).mkdir(mode=0o755)
    server = Server.open(tmp_path / DATABASE, 1, answer)
    assert stat.S_IMODE((tmp_path / place.FOLDER).stat().st_mode) == 0o700
    server.close()


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / place.FOLDER).symlink_to(elsewhere)
    with pytest.raises(NotADirectoryError):
        Server.open(tmp_path / DATABASE, 1, answer)
    assert list(elsewhere.iterdir()) == []


def test_a_path_longer_than_a_sockets_name_may_be_is_no_matter(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    server = Server.open(deep / DATABASE, 1, answer)
    assert names(deep / DATABASE) == ["1.sock"]
    server.close()
    assert names(deep / DATABASE) == []


def make(path: Path, what: str) -> None:
    if what == "file":
        path.write_text("hello")
    elif what == "link":
        path.symlink_to("/etc/passwd")
    else:
        with socket.socket(socket.AF_UNIX) as line:
            line.bind(str(path))


def recorded(store: Path, run: int, **row: Any) -> None:
    with Writer.open(store) as writer:
        assert writer.begin_run(NewRun(**row)) == run


@pytest.mark.parametrize("what", ["file", "link", "socket"])
def test_whatever_lies_under_our_name_makes_way(tmp_path: Path, what: str) -> None:
    store = tmp_path / DATABASE
    (tmp_path / place.FOLDER).mkdir(mode=0o700)
    make(tmp_path / place.FOLDER / "1.sock", what)
    server = Server.open(store, 1, answer)
    assert stat.S_ISSOCK((tmp_path / place.FOLDER / "1.sock").lstat().st_mode)
    server.close()
    assert names(store) == []
    assert Path("/etc/passwd").exists()


def test_a_folder_under_our_name_is_a_reason_and_leaves_no_half(tmp_path: Path) -> None:
    before = descriptors()
    (tmp_path / place.FOLDER / "1.sock").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        Server.open(tmp_path / DATABASE, 1, answer)
    assert names(tmp_path / DATABASE) == ["1.sock"]
    assert descriptors() == before


def test_what_another_has_put_there_by_now_stays(tmp_path: Path) -> None:
    store = tmp_path / DATABASE
    first = Server.open(store, 1, answer)
    second = Server.open(store, 1, answer)
    first.close()
    assert names(store) == ["1.sock"]
    second.close()
    assert names(store) == []


@pytest.mark.parametrize(("age", "left"), [(0.0, ["2.sock"]), (1e9, ["1.sock", "2.sock"])])
def test_what_killed_recorders_left_is_swept_unless_it_is_young(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, left: list[str]
) -> None:
    monkeypatch.setattr(place, "STALE_SECONDS", age)
    recorded(tmp_path / DATABASE, 1)
    (tmp_path / place.FOLDER).mkdir(mode=0o700)
    make(tmp_path / place.FOLDER / "1.sock", "socket")
    server = Server.open(tmp_path / DATABASE, 2, answer)
    assert names(tmp_path / DATABASE) == left
    server.close()


def test_of_another_machine_that_shares_the_folder_nothing_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "STALE_SECONDS", 0.0)
    store = tmp_path / DATABASE
    recorded(store, 1, host="elsewhere")
    recorded(store, 2)
    (tmp_path / place.FOLDER).mkdir(mode=0o700)
    # The last one belongs to a run that is not in the store.
    for name in ("1.sock", "1.77.new", "2.sock", "2.77.new", f"{10**18}.sock"):
        make(tmp_path / place.FOLDER / name, "socket")
    server = Server.open(store, 3, answer)
    assert names(store) == ["1.77.new", "1.sock", f"{10**18}.sock", "3.sock"]
    server.close()


def test_a_living_recorder_and_what_is_not_ours_are_never_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "STALE_SECONDS", 0.0)
    store = tmp_path / DATABASE
    recorded(store, 1)
    first = Server.open(store, 1, answer)
    strange = tmp_path / place.FOLDER / "theirs.sock"
    make(strange, "socket")
    make(strange.with_name("7.sock"), "file")
    second = Server.open(store, 2, answer)
    assert names(store) == ["1.sock", "2.sock", "7.sock", "theirs.sock"]
    second.close()
    first.close()


def test_a_disk_without_sockets_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(place.os, "rename", refuse)
    with pytest.raises(OSError, match="not supported"):
        Server.open(tmp_path / DATABASE, 1, answer)
    assert names(tmp_path / DATABASE) == []

"""The files of traces: private, few, and gone with their recording."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Monitor, lines
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.tracing import space as module
from whyidle.monitor.tracing.space import MOST_FILES, Space, of_pid, of_run


def put(space: Space, owner: str, size: int = 10) -> Path:
    handle, path = space.create(owner, "torch")
    os.truncate(path, size)
    os.close(handle)
    return path


def test_files_made_in_the_same_moment_are_not_the_same(space: Space) -> None:
    paths = {put(space, of_run(1)) for _ in range(20)}
    assert len(paths) == 20


def test_the_newest_few_of_each_recording_stay(space: Space) -> None:
    first = [put(space, of_run(1)) for _ in range(5)]
    second = [put(space, of_run(2)) for _ in range(2)]
    none = [put(space, of_pid(77)) for _ in range(4)]
    assert set(space.tidy()) == {*first[:-MOST_FILES], *none[:-MOST_FILES]}
    left = {file.path for file in space.files()}
    assert left == {*first[-MOST_FILES:], *second, *none[-MOST_FILES:]}


def test_all_together_have_a_limit_and_the_newest_stays(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    old, newer, newest = (put(space, of_run(run), 60) for run in (1, 2, 3))
    assert space.tidy() == [old, newer]
    assert [file.path for file in space.files()] == [newest]
    monkeypatch.setattr(module, "MOST_BYTES", 1)
    assert space.tidy() == []


def test_what_is_not_ours_is_left_alone(space: Space) -> None:
    put(space, of_run(1))
    stranger = space.folder / "run-1-notes.txt"
    stranger.write_text("mine")
    (space.folder / "run-1-5.json").symlink_to(stranger)
    assert len(space.files()) == 1
    space.forget({1})
    assert stranger.exists()
    assert (space.folder / "run-1-5.json").is_symlink()


def test_a_folder_that_is_not_there_holds_nothing(space: Space) -> None:
    assert space.files() == []
    assert space.tidy() == []
    assert space.forget({1}) == 0


def test_pruning_takes_the_files_with_the_recording(monitor: Monitor, state: Path) -> None:
    store = state / "whyidle.db"
    with Writer.open(store) as writer:
        runs = [writer.begin_run(NewRun()) for _ in range(2)]
        for run in runs:
            writer.end_run(run, "done")
    space = Space(store)
    gone, stays = (put(space, of_run(run), 5 << 20) for run in runs)
    done = monitor("prune", runs[0], "--yes", "--json")
    assert done.returncode == 0, done.stderr
    (freed,) = lines(done.stdout)
    assert freed["freed_bytes"] >= 5 << 20
    assert not gone.exists()
    assert stays.exists()


def test_a_recordings_files_count_for_its_size(monitor: Monitor, state: Path) -> None:
    store = state / "whyidle.db"
    with Writer.open(store) as writer:
        runs = [writer.begin_run(NewRun()) for _ in range(2)]
        for run in runs:
            writer.end_run(run, "done")
    put(Space(store), of_run(runs[0]), 50 << 20)
    (freed,) = lines(monitor("prune", "--max-size", "40MB", "--yes", "--json").stdout)
    assert freed["deleted"] == [runs[0]]

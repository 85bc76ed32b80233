from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.processes import namespace
from whyidle.monitor.processes.namespace import FIRST_NAMESPACE, pids_match
from whyidle.monitor.processes.procfs import ProcFs

CUDA = "7f00-7f01 r-xp 0 0 1 /usr/lib/libcuda.so.570\n"


class Counting(ProcFs):
    """A /proc that counts how often the expensive files are read."""

    reads = 0
    stats = 0

    def read(self, path: str, *, short: bool = False) -> bytes | None:
        self.reads += path.endswith("maps")
        self.stats += path.endswith("stat")
        return super().read(path, short=short)


@pytest.fixture
def fs(tmp_path: Path) -> Counting:
    """A container with one process, 7."""
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532999]")
    write(tmp_path, 7)
    return Counting(str(tmp_path))


def write(folder: Path, pid: int, *, start: int = 5, maps: str = "") -> None:
    (folder / str(pid)).mkdir(exist_ok=True)
    words = ["S", "1", *["0"] * 17, str(start), *["0"] * 20]
    (folder / str(pid) / "stat").write_text(f"{pid} (a) {' '.join(words)}\n")
    (folder / str(pid) / "maps").write_text(maps)


def test_in_the_first_namespace_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to(FIRST_NAMESPACE)
    fs = Counting(str(tmp_path))
    assert pids_match(fs, 7)
    assert (fs.reads, fs.stats) == (0, 0)


def test_a_process_that_uses_the_driver_is_examined_once(fs: Counting) -> None:
    write(Path(fs.root), 7, maps=CUDA)
    assert all(pids_match(fs, 7, float(now)) for now in range(1000))
    assert (fs.reads, fs.stats) == (1, 1)


def test_one_that_does_not_is_examined_again_ever_less_often(fs: Counting) -> None:
    read_at = []
    for now in range(700):
        before = fs.reads
        assert not pids_match(fs, 7, float(now))
        read_at += [now] * (fs.reads - before)
    assert read_at == [0, 2, 5, 15, 60, 360, 660]
    write(Path(fs.root), 7, maps=CUDA)
    assert not pids_match(fs, 7, 900.0)
    assert pids_match(fs, 7, 960.0)


def test_another_process_with_the_same_pid_is_examined_anew(fs: Counting) -> None:
    write(Path(fs.root), 7, maps=CUDA)
    assert pids_match(fs, 7, 0.0)
    write(Path(fs.root), 7, start=6)
    # A recorder of the job reads this line at every tick.
    fs.stat(7)
    assert not pids_match(fs, 7, 0.1)
    assert fs.reads == 2


def test_the_verdicts_take_no_more_room_than_this(
    fs: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "MOST_VERDICTS", 3)
    for pid in range(10, 20):
        write(Path(fs.root), pid)
        pids_match(fs, pid, 0.0)
    assert set(fs.followed) == {17, 18, 19}
    assert set(namespace._verdicts[fs]) == {17, 18, 19}


def test_a_process_that_has_gone_is_nobodys(fs: Counting) -> None:
    assert not pids_match(fs, 8)
    assert fs.followed == {}

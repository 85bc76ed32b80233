"""Where a file of the job lies, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.processes.mounts import Mounts
from whyidle.monitor.processes.procfs import ProcFs

MOUNTS = r"""22 1 8:2 / / rw - ext4 /dev/sda2 rw
30 22 0:44 / /data rw - nfs4 server:/export rw
31 30 8:17 / /data/a\040disk rw - xfs /dev/sdb1 rw
32 22 0:50 / /mnt/bucket rw shared:7 - fuse.gcsfuse bucket rw
33 22 0:60 / /gone rw - tmpfs tmpfs rw
34 22 0:61 / /gone rw - overlay overlay rw
a line that is damaged
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/mountinfo").write_text(MOUNTS)
    for device, rotates in (("8:2", "0"), ("8:17/..", "1")):
        # The parts of a disk have no queue of their own.
        folder = tmp_path / "sys/dev/block" / device.partition("/")[0]
        folder.mkdir(parents=True, exist_ok=True)
        queue = (folder / "queue") if "/" not in device else folder.parent / "queue"
        queue.mkdir(exist_ok=True)
        (queue / "rotational").write_text(f"{rotates}\n")
    return Mounts(ProcFs(str(tmp_path / "proc")), 7, str(tmp_path / "sys"))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/home/me/a.jpg", "ext4 at /"),
        ("/data/train/0.tar", "nfs4 at /data"),
        ("/database/x", "ext4 at /"),
        ("/data/a disk/0.tar", "xfs at /data/a disk, on a rotating disk"),
        ("/mnt/bucket/x", "fuse.gcsfuse at /mnt/bucket"),
        ("/gone/x", "overlay at /gone"),
        ("socket:[123]", "socket"),
        ("anon_inode:[eventfd]", "anon_inode"),
    ],
)
def test_a_file_lies_on_the_longest_mount_before_it(mounts: Mounts, path: str, words: str) -> None:
    assert mounts.of(path) == words
    # It is remembered by its folder.
    assert mounts.of(path) == words


def test_a_process_whose_mounts_are_not_shown(tmp_path: Path) -> None:
    assert "not known" in Mounts(ProcFs(str(tmp_path)), 7).of("/data/x")

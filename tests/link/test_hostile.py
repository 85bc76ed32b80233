"""A hostile job: whatever lies in its folder, the monitor reads on or stays away."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.link.conftest import FS, Puppet, until
from whyidle.agents import wire
from whyidle.monitor.link import spool as spool_module
from whyidle.monitor.link.channel import Address
from whyidle.monitor.link.link import Link, LinkLost, LinkRefused
from whyidle.monitor.link.records import Gauges, Record

MARK = Gauges(1, {"rss_peak_bytes": 1.0})
MARKED = '["gauges",1,{"rss_peak_bytes":1}]'


def marked(seen: list[Record]) -> bool:
    return MARK in seen


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "{}",
        "[]",
        "null",
        '["gauges"]',
        '["gauges",-1,{}]',
        '["gauges",1e400,{}]',
        f'["gauges",{2**64},{{}}]',
        '["gauges",1,{"rss_peak_bytes":NaN}]',
        '["gauges",1,{"rss_peak_bytes":1e400}]',
        '["gauges",1,{"rss_peak_bytes":"many"}]',
        '["gauges",1,' + json.dumps({str(i): i for i in range(300)}) + "]",
        '["gc",1,2]',
        '["stacks",1,1,1,[[1,["' + "x" * (wire.LONGEST_FILE + 1) + '",1,"f"],[]]]]',
        '["stacks",1,1,1,[[1,["a",1,"' + "f" * (wire.LONGEST_NAME + 1) + '"],[]]]]',
        '["stacks",1,1,1,[[1,null,' + json.dumps([["", 0, ""]] * (wire.STACK_DEPTH + 1)) + "]]]",
        '["stacks",1,1,1,' + json.dumps([[1]] * (wire.MOST_PLACES + 1)) + "]",
        "[" * 60_000,
        '["bye",1,"' + "x" * 100_000 + '"]',
        "\udcff\udcfe",
    ],
    ids=range(21),
)
def test_a_damaged_line_is_counted_and_the_next_is_read(line: str, puppet: Puppet) -> None:
    link = Link.open(puppet.key, FS)
    assert link is not None
    with puppet.spool.open("a", errors="surrogateescape") as file:
        file.write(f"{line}\n{MARKED}\n")
    until(link, marked)
    assert link.damaged == 1
    link.close()


@pytest.mark.parametrize("line", ['["step",1,2,3]', '["a newer kind",{"x":[]}]'])
def test_what_a_newer_agent_says_is_passed_over(line: str, puppet: Puppet, link: Link) -> None:
    puppet.do(f"raw {line}")
    puppet.do(f"raw {MARKED}")
    until(link, marked)
    assert link.damaged == 0


def test_a_name_that_is_no_text_costs_only_the_name(puppet: Puppet, link: Link) -> None:
    puppet.do(r'raw ["stacks",1,1,1,[[1,["a\udcffb.py",1,"f"],[]]]]')
    found = until(link, lambda seen: len(seen) == 3)[-1]
    assert found.counts[0].leaf.file == "a?b.py"  # type: ignore[union-attr]


def test_the_longest_name_of_an_agent_fits_also_beside_one_that_is_no_text(
    puppet: Puppet, link: Link
) -> None:
    leaf = ["\U0001f600" * wire.LONGEST_FILE, 1, "\udcff"]
    puppet.write("stacks", 1, 1, [[1, leaf, [leaf] * wire.STACK_DEPTH]])
    found = until(link, lambda seen: len(seen) == 3)[-1]
    assert found.counts[0].leaf.file == leaf[0]  # type: ignore[union-attr]
    assert found.counts[0].leaf.function == "?"  # type: ignore[union-attr]


def test_an_endless_line_is_passed_over_in_pieces(
    puppet: Puppet, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "PIECE", 1 << 17)
    with puppet.spool.open("a") as file:
        file.write("x" * (1 << 20) + f"\n{MARKED}\n")
    until(link, marked)
    assert link.damaged == 1


def test_a_flood_is_read_a_little_at_a_time(puppet: Puppet, link: Link) -> None:
    with puppet.spool.open("a") as file:
        file.write("[]\n" * 50_000 + f"{MARKED}\n")
    before = link.damaged
    link.exchange()
    assert link.damaged - before <= spool_module.MOST_LINES
    until(link, marked)
    assert link.damaged == 50_000


def test_a_spool_without_end_is_not_followed(puppet: Puppet, link: Link) -> None:
    os.truncate(puppet.spool, 1 << 40)
    with puppet.spool.open("a") as file:
        file.write(f"\n{MARKED}\n")
    until(link, marked)


def replaced(puppet: Puppet, make: Callable[[Path], object]) -> None:
    puppet.spool.unlink()
    make(puppet.spool)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("/etc/hostname"),
        os.mkfifo,
        Path.mkdir,
        lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5)),
        lambda path: (path.write_text(MARKED), os.chown(path, 12345, 12345)),
    ],
    ids=["symlink", "fifo", "folder", "device", "of another user"],
)
def test_what_is_no_spool_is_refused(make: Callable[[Path], object], puppet: Puppet) -> None:
    if os.geteuid() != 0:
        pytest.skip("making these needs root")
    replaced(puppet, make)
    with pytest.raises(LinkRefused, match="left alone"):
        Link.open(puppet.key, FS)


def test_no_spool_is_said(puppet: Puppet) -> None:
    puppet.spool.unlink()
    with pytest.raises(LinkRefused, match="no spool"):
        Link.open(puppet.key, FS)


def test_a_socket_of_another_process_is_refused(puppet: Puppet) -> None:
    puppet.socket.unlink()
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(str(puppet.socket))
        ours.listen()
        with pytest.raises(LinkRefused, match="another process"):
            Link.open(puppet.key, FS)


def test_a_link_to_a_socket_is_refused(puppet: Puppet, tmp_path: Path) -> None:
    puppet.socket.rename(tmp_path / "moved")
    puppet.socket.symlink_to(tmp_path / "moved")
    with pytest.raises(LinkRefused, match="no socket"):
        Link.open(puppet.key, FS)


def test_a_strangers_link_is_not_followed_to_see_who_is_there(
    puppet: Puppet, tmp_path: Path
) -> None:
    address = Address.of(puppet.key, FS)
    assert address is not None
    assert address.is_there()
    puppet.folder.rename(tmp_path / "moved")
    puppet.folder.symlink_to(tmp_path / "moved")
    assert not address.is_there()


def test_a_folder_without_a_socket_hides_no_later_one(
    puppet: Puppet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / puppet.folder.name).mkdir(mode=0o700)
    (tmp_path / puppet.folder.name / puppet.socket.name).write_text("no socket")
    monkeypatch.setattr(wire, "FOLDERS", (str(tmp_path), *wire.FOLDERS))
    address = Address.of(puppet.key, FS)
    assert address is not None
    assert address.is_there()


def test_opening_leaves_no_folder_open(puppet: Puppet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FOLDERS", wire.FOLDERS * 3)

    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = handles()
    link = Link.open(puppet.key, FS)
    assert link is not None
    link.close()
    assert handles() == before
    puppet.spool.unlink()
    with pytest.raises(LinkRefused):
        Link.open(puppet.key, FS)
    assert handles() == before


def test_what_others_add_to_a_dead_ones_spool_is_not_waited_for(puppet: Puppet, link: Link) -> None:
    until(link, lambda seen: len(seen) == 2)
    puppet.process.kill()
    puppet.process.wait()

    def go_on() -> None:
        for _ in range(5):
            with puppet.spool.open("a") as file:
                file.write(f"{MARKED}\n")
            link.exchange()

    with pytest.raises(LinkLost):
        go_on()


def test_a_spool_that_cannot_be_read_is_a_lost_link(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(link._spool, "size", fails)
    with pytest.raises(LinkLost):
        link.exchange()


def test_a_folder_open_to_others_is_none_of_an_agents(puppet: Puppet) -> None:
    puppet.folder.chmod(0o777)
    assert Link.open(puppet.key, FS) is None


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\n", b"[]\n", b'{"ok":true}\n' * 9, b"x" * (1 << 20), b'{"ok":', b"\xff\n"],
)
def test_an_answer_that_is_none_ends_the_line(answer: bytes, puppet: Puppet) -> None:
    link = Link.open(puppet.key, FS)
    assert link is not None
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    link._control._peer.close()
    link._control._peer = ours
    theirs.setblocking(False)
    theirs.send(answer)
    theirs.shutdown(socket.SHUT_WR)
    link.exchange()
    with pytest.raises(LinkLost):
        link.exchange()
    theirs.close()
    link.close()


def test_an_epoch_that_is_no_number_changes_nothing(puppet: Puppet, link: Link) -> None:
    until(link, lambda seen: len(seen) == 2)
    link._take_epoch({"epoch": "1"})
    link._take_epoch({"epoch": None})
    puppet.do(f"raw {MARKED}")
    assert until(link, marked) == [MARK]

"""A spool that is full, or lies on a disk that is full or broken: records are lost, and counted."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.agents.pythons import Client, ends_well, job
from whyidle.agents import spool, wire
from whyidle.agents.fds import Descriptor
from whyidle.agents.folder import Folder
from whyidle.agents.spool import RESERVE, Spool

PAGE = os.sysconf("SC_PAGESIZE")


@pytest.fixture
def kept(tmp_path: Path) -> Spool:
    handle = Descriptor(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
    return Spool(Folder(str(tmp_path), handle), "1.spool")


def lines(folder: Path) -> list[Any]:
    found = []
    for line in (folder / "1.spool").read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append("torn")
    return found


def test_what_finds_no_room_is_dropped_and_counted_and_the_last_one_has_its_own(
    kept: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SPOOL_CAP", RESERVE + 100)
    for n in range(20):
        kept.write([["gauges", n, {}]], RESERVE + 100 - RESERVE)
    kept.write_last(["bye", 20, "exit"])
    found = lines(tmp_path)
    assert 0 < len(found) - 1 < 20
    assert kept.lost == 20 - (len(found) - 1)
    assert found[-1] == ["bye", 20, "exit"]
    assert (tmp_path / "1.spool").stat().st_size == kept.size < RESERVE + 100


def test_the_cap_is_what_both_sides_agreed_on(kept: Spool, tmp_path: Path) -> None:
    kept.size = wire.SPOOL_CAP - RESERVE
    kept.write([["gauges", 1, {}]])
    assert (kept.lost, lines(tmp_path)) == (1, [])


@pytest.mark.parametrize("record", [["x", object()], ["x", "a" * 60_000], ["x", {1, 2}]])
def test_a_record_that_is_none_is_counted(record: list[Any], kept: Spool, tmp_path: Path) -> None:
    kept.write([record, ["gauges", 1, {}]])
    assert (kept.lost, lines(tmp_path)) == (1, [["gauges", 1, {}]])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_write_that_fails_is_counted_and_the_next_one_is_tried(
    number: int, kept: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise OSError(number, "no")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", fails)
        kept.write([["gauges", 1, {}], ["gauges", 2, {}]])
    kept.write([["gauges", 3, {}]])
    assert (kept.lost, lines(tmp_path)) == (2, [["gauges", 3, {}]])


def test_after_a_torn_line_the_next_one_stands_alone(
    kept: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    with monkeypatch.context() as short:
        short.setattr(os, "write", lambda number, text: real(number, text[:-5]))
        kept.write([["gauges", 1, {}], ["gauges", 2, {}]])
    kept.write([["gauges", 3, {}]])
    assert kept.lost == 1
    assert lines(tmp_path) == [["gauges", 1, {}], "torn", ["gauges", 3, {}]]


def fill(path: Path) -> None:
    """Write until no page is left."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(number, b"x" * PAGE):
            pass
    os.close(number)


def test_a_full_disk_costs_the_job_nothing(small_disk: Path) -> None:
    source = """
start(); until(reachable)
ready(); sys.stdin.readline(); print("went on", flush=True); sys.stdin.readline()
"""
    with job(source, small_disk) as process, Client(small_disk, process.pid) as client:
        client.wait_for("gauges")
        filler = small_disk / "filler"
        fill(filler)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "went on\n"
        # It writes until its last page is full.
        while client.ask("hello")["size"] % PAGE:
            for on in (False, True) * 10:
                assert client.ask("probe", name="python", on=on)["ok"]
        filler.unlink()
        # A torn line is no record; the first line after it is whole again.
        client.offset = client.spool.stat().st_size
        while not client.wait_for("gauges")[2][wire.LOST]:
            pass
        assert client.ask("leave")["ok"]
        assert client.is_hung_up()
        ends_well(process)

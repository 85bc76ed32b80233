"""A process with a fake agent inside, told what to say line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from whyidle.agents import wire
from whyidle.monitor.link.link import Link
from whyidle.monitor.link.records import Record
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs

FS = ProcFs()


def key_of(pid: int) -> ProcessKey:
    stat = FS.stat(pid)
    assert stat is not None
    return ProcessKey(pid, stat.start_ticks)


class Puppet:
    """One process with a fake agent."""

    def __init__(self, parent: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.link.fake_agent", parent],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("ready")
        self.pid = self.process.pid
        self.key = key_of(self.pid)
        self.folder = Path(parent) / wire.folder_name(os.geteuid())
        self.spool = self.folder / wire.spool_name(self.pid)
        self.socket = self.folder / wire.socket_name(self.pid)

    def _expect(self, said: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{said}\n"

    def do(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        if order != "exit":
            self._expect("done")

    def write(self, *record: object) -> None:
        self.do(f"write {json.dumps(record)}")

    def end(self) -> None:
        with self.process:
            self.process.kill()


@pytest.fixture
def puppet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Puppet]:
    # Short, for the socket's name; and ours alone: other tests have agents of their own.
    with tempfile.TemporaryDirectory() as parent:
        monkeypatch.setattr(wire, "FOLDERS", ("/nowhere", parent))
        found = Puppet(parent)
        yield found
        found.end()


@pytest.fixture
def link(puppet: Puppet) -> Iterator[Link]:
    found = Link.open(puppet.key, FS)
    assert found is not None
    yield found
    found.close()


def until(
    link: Link, enough: Callable[[list[Record]], bool], seconds: float = 10.0
) -> list[Record]:
    """Exchange until the records are enough."""
    found: list[Record] = []
    deadline = time.monotonic() + seconds
    while not enough(found):
        assert time.monotonic() < deadline, found
        found += link.exchange()
        time.sleep(0.001)
    return found

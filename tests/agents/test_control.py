"""Clients that send harmful or meaningless requests get a reason and hold up nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.pythons import Client, job
from whyidle.agents import wire

Agent = tuple[Path, int]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    source = "start(); until(reachable); ready(); sys.stdin.readline()"
    with job(source, tmp_path) as process:
        yield tmp_path, process.pid
        assert process.poll() is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"[]",
        b"null",
        b"1e999",
        b"[" * 4000,
        b"{}",
        b'{"do": 1}',
        b'{"do": ["hello"]}',
        b'{"do": "run", "code": "1"}',
        b'{"do": "lease"}',
        b'{"do": "tell"}',
        b'{"do": "tell", "said": ["x"]}',
        b'{"do": "lease", "read": -1}',
        b'{"do": "lease", "read": true}',
        b'{"do": "lease", "read": 1.5}',
        b'{"do": "probe", "name": "python"}',
        b'{"do": "probe", "name": "os", "on": true}',
        b'{"do": "probe", "name": ["python"], "on": false}',
        b"\xff\xfe\x00",
        b'"' + b"a" * wire.MESSAGE_BYTES,
    ],
)
def test_a_message_that_is_none_is_refused_with_a_reason(line: bytes, agent: Agent) -> None:
    with Client(*agent) as client:
        client.send(line + b"\n")
        answer = client.hear()
        assert answer["ok"] is False
        assert answer["why"]
        assert client.ask("hello")["ok"]


def test_a_line_without_an_end_ends_the_connection(agent: Agent) -> None:
    with Client(*agent) as client:
        client.send(b"a" * (2 * wire.MESSAGE_BYTES))
        assert client.hear()["ok"] is False
        assert client.is_hung_up()
    with Client(*agent) as client:
        assert client.ask("hello")["ok"]


def test_one_that_never_listens_is_let_go_and_the_others_are_served(agent: Agent) -> None:
    with Client(*agent) as deaf, Client(*agent) as other:
        deaf.socket.setblocking(False)
        flood = b'{"do": "hello"}\n' * 1000
        for _ in range(200):
            try:
                deaf.socket.send(flood)
            except BlockingIOError:
                assert other.ask("hello")["ok"]
            except OSError:
                break
        assert other.wait_for("gauges")[2][wire.LOST] == 0


def test_there_is_room_for_a_few_and_the_next_hears_why_not(agent: Agent) -> None:
    clients = [Client(*agent) for _ in range(8)]
    for client in clients:
        assert client.ask("hello")["ok"]
    with Client(*agent) as ninth:
        assert "no more fit" in ninth.hear()["why"]
        assert ninth.is_hung_up()
    clients.pop().close()
    while True:
        with Client(*agent) as again:
            again.send(b'{"do": "hello"}\n')
            if again.hear()["ok"]:
                break
    for client in clients:
        client.close()


def test_messages_may_come_in_pieces_and_in_bundles(agent: Agent) -> None:
    with Client(*agent) as client:
        client.send(b'{"do": "he')
        client.send(b'llo"}\n{"do": "hello"}\n{"do": "lea')
        assert client.hear()["ok"]
        assert client.hear()["ok"]
        client.send(b've"}\n')
        assert client.hear() == {"ok": True}


def test_a_probe_is_turned_off_and_on(agent: Agent) -> None:
    with Client(*agent) as client:
        assert client.wait_for("gauges")[2][wire.GC_NS] is not None
        assert client.ask("probe", name="python", on=False) == {"ok": True}
        assert client.wait_for("probe")[2:] == ["python", "off", "asked"]
        assert wire.GC_NS not in client.wait_for("gauges")[2]
        assert client.ask("probe", name="python", on=True) == {"ok": True}
        assert client.wait_for("probe")[2:] == ["python", "on", None]
        assert sorted(client.ask("hello")["probes"]) == ["jax", "python", "tensorflow", "torch"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be somebody else")
def test_another_user_is_not_answered(agent: Agent) -> None:
    folder, pid = agent
    place = folder / wire.folder_name(0)
    path = place / wire.socket_name(pid)
    # Even where the file permissions allow it.
    ours = [parent for parent in folder.parents if "pytest-of-" in str(parent)]
    for opened in (folder, *ours, place, path):
        opened.chmod(0o777)
    source = f"""
        import os, socket
        os.setuid(65534)
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect({str(path)!r})
        try:
            s.sendall(b'{{"do": "hello"}}\\n')
            print(s.recv(100))
        except OSError:
            print(b"")
        """
    line = [sys.executable, "-c", textwrap.dedent(source)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("b''\n", "")


def test_a_spool_that_all_have_read_is_emptied(tmp_path: Path) -> None:
    source = """
load(); sys.modules["_whyidle_agent.wire"].SPOOL_TRIM = 600
sys.modules.pop("_whyidle_agent.spool", None)
import importlib
for name in list(sys.modules):
    if name.startswith("_whyidle_agent.") and not name.endswith(".wire"): del sys.modules[name]
importlib.import_module("_whyidle_agent.core").start({"method": "run", "grace": 60})
until(reachable); ready(); sys.stdin.readline()
"""
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as one:  # noqa: SIM117
        with Client(tmp_path, process.pid) as two:
            while one.ask("lease", read=one.offset)["epoch"] == 0:
                # The slower one is waited for.
                one.records()
                assert two.ask("lease", read=0)["epoch"] == 0
                if one.offset > 1200:
                    two.records()
                    two.ask("lease", read=two.offset)
            one.offset = two.offset = 0
            assert [r[0] for r in one.records()][:2] == ["hello", "clock"]
            # It refers to the old one until it is told.
            assert two.ask("lease", read=5000)["epoch"] >= 1
            assert one.wait_for("gauges")

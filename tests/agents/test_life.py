"""Start, talk, leave, and come back: the job is as it was before."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from tests.agents.pythons import Client, ends_well, every_python, job, run
from whyidle.agents import wire

# What must be the same before and after.
STATE = """
import atexit, signal, threading, json, _socket, select, _thread, struct
from importlib import machinery
def state():
    return {
        "fds": sorted(os.listdir("/proc/self/fd")), "tasks": tasks(),
        "callbacks": list(gc.callbacks),
        "modules": sorted(m for m in sys.modules if m != "_whyidle_fork"),
        "threads": [threading.active_count(), len(threading.enumerate()), _thread._count()],
        "umask": (os.umask(0o22), os.umask(0o22))[0], "cwd": os.getcwd(), "path": list(sys.path),
        "main": threading.main_thread().ident, "names": len(vars(sys.modules["__main__"])),
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "handlers": [signal.getsignal(s) for s in signal.valid_signals()],
    }
before = after = None
"""

LEAVE = """
import socket
def leave():
    s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(mine())
    s.sendall(b'{"do": "leave"}\\n')
    assert s.recv(4096) == b'{"ok": true}\\n'
    assert s.recv(1) == b""
    s.close()
"""


@every_python
def test_a_job_is_as_before_when_the_agent_has_left(python: str, tmp_path: Path) -> None:
    source = (
        LEAVE
        + STATE
        + """
start(); until(reachable); leave(); until(lambda: tasks() == 1)
for _ in range(3):
    before = state()
    start(); until(reachable); gc.collect()
    until(lambda: len(gc.callbacks) == len(before["callbacks"]) + 3)
    assert threading.active_count() == before["threads"][0]
    leave(); until(lambda: tasks() == before["tasks"])
    after = state()
    assert after == before, [(k, before[k], after[k]) for k in before if before[k] != after[k]]
assert not os.listdir(os.path.dirname(mine()))
"""
    )
    run(python, source, tmp_path)


TALKING = "start(); until(reachable); ready(); sys.stdin.readline()"


@every_python
def test_the_agent_says_who_it_is_and_what_it_sees(python: str, tmp_path: Path) -> None:
    with job(TALKING, tmp_path, python) as process, Client(tmp_path, process.pid) as client:
        hello = client.ask("hello")
        assert hello["ok"]
        assert hello["spool"] == str(client.spool)
        assert (hello["pid"], hello["method"], hello["epoch"]) == (process.pid, "ptrace", 0)
        first, second, third = client.records()[:3]
        assert first[0] == "hello"
        assert first[2]["pid"] == process.pid
        assert second[0] == "clock"
        assert third[0] == "probe"
        assert third[2:] == ["python", "on", None]
        gauges = client.wait_for("gauges")[2]
        assert gauges[wire.LOST] == 0
        assert gauges[wire.PYTHON_THREADS] == 1
        assert gauges[wire.RSS_PEAK_BYTES] > 1 << 20
        ends_well(process)


def test_files_are_for_their_user_alone(tmp_path: Path) -> None:
    with job("os.umask(0); " + TALKING, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert client.home.stat().st_mode & 0o777 == 0o700
            assert client.spool.stat().st_mode & 0o777 == 0o600
            mode = (client.home / wire.socket_name(process.pid)).stat().st_mode
            assert mode & 0o777 == 0o600
        ends_well(process)


def test_the_last_one_to_leave_ends_it(tmp_path: Path) -> None:
    with job(TALKING, tmp_path) as process:
        with Client(tmp_path, process.pid) as one, Client(tmp_path, process.pid) as two:
            one.ask("lease", read=0)
            two.ask("lease", read=0)
            assert one.ask("leave") == {"ok": True}
            assert two.ask("lease", read=0)["ok"]
            assert two.ask("leave") == {"ok": True}
            assert two.records()[-1][::2] == ["bye", "detached"]
            assert two.is_hung_up()
            assert not list(two.home.iterdir())
        ends_well(process)


def test_without_a_client_it_goes_by_itself(tmp_path: Path) -> None:
    source = "start(grace=0.2); until(reachable); ready(); until(lambda: not reachable())"
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        assert client.is_hung_up()
        assert client.records()[-1][::2] == ["bye", "lease"]
        ends_well(process)


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    source = """
core = start(); until(reachable); number = tasks()
core.start({}); start(method="other"); assert tasks() == number
ready(); sys.stdin.readline()
"""
    with job(source, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert client.ask("hello")["method"] == "ptrace"
        ends_well(process)


@pytest.mark.parametrize("spoil", ["chmod", "link", "file", "missing"])
def test_a_folder_that_is_not_ours_alone_is_left_alone(spoil: str, tmp_path: Path) -> None:
    place = tmp_path / wire.folder_name(os.geteuid())
    if spoil == "chmod":
        place.mkdir(mode=0o770)
        place.chmod(0o770)
    elif spoil == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "real")
    elif spoil == "file":
        place.touch()
    parent = tmp_path / "nothing" if spoil == "missing" else tmp_path
    source = """
core = start(); until(lambda: not core.alive()); until(lambda: tasks() == 1)
assert not [m for m in sys.modules if m.startswith("_whyidle_agent")]
assert not gc.callbacks
"""
    run(sys.executable, source, parent)
    assert not list((tmp_path / "real").glob("*"))


def test_a_leftover_of_the_same_number_gives_way_and_a_living_one_does_not(tmp_path: Path) -> None:
    source = """
import socket
os.mkdir(os.path.dirname(mine()), 0o700)
other = socket.socket(socket.AF_UNIX); other.bind(mine()); open(mine("spool"), "w").close()
core = start(); until(reachable)
other.close()
LEAVE
leave(); until(lambda: not core.alive())
other = socket.socket(socket.AF_UNIX); other.bind(mine()); other.listen()
core = start(); until(lambda: not core.alive())
assert os.path.exists(mine())
other.close()
"""
    run(sys.executable, source.replace("LEAVE", LEAVE), tmp_path)


def test_what_killed_agents_left_is_removed_in_time(tmp_path: Path) -> None:
    place = tmp_path / wire.folder_name(os.geteuid())
    place.mkdir(mode=0o700)
    for name in ("1.spool", "1.sock", "2.spool", "2.sock", "3.spool", "3.sock", "other.txt"):
        if name.endswith(".sock"):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(place / name))
        else:
            (place / name).touch()
        if not name.startswith("2"):
            os.utime(place / name, (0, 0))
    with socket.socket(socket.AF_UNIX) as living:
        (place / "3.sock").unlink()
        living.bind(str(place / "3.sock"))
        living.listen()
        os.utime(place / "3.sock", (0, 0))
        # Its first round comes at once, when its minute is made short.
        source = """
load(); sys.modules["_whyidle_agent.session"].MINUTE = 1000
start = sys.modules["_whyidle_agent.core"].start
start({"method": "ptrace"}); until(reachable)
ready(); sys.stdin.readline()
"""
        with job(source, tmp_path) as process:
            while (place / "1.spool").exists() or (place / "1.sock").exists():
                assert process.poll() is None
            ends_well(process)
    assert sorted(p.name for p in place.iterdir()) == [
        "2.sock", "2.spool", "3.sock", "3.spool", "other.txt"
    ]  # fmt: skip

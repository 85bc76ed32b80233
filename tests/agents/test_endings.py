"""However a job ends, the agent neither holds it up nor prints anything, and its files stay."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.pythons import Client, command, every_python, job, run
from tests.longer import STRESS

ENDINGS = {
    "end": "",
    "exit": "sys.exit(0)",
    "thread": "import threading; threading.Thread(target=lambda: time.sleep(0.01)).start()",
    "garbage": "junk = [[] for _ in range(100000)]; junk.append(junk)",
    "fork": "pid = os.fork()\nif pid: os.waitpid(pid, 0)",
    "started": "start()",
}


@every_python
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_quick_ends_are_quiet(ending: str, python: str, tmp_path: Path) -> None:
    """At another moment of the agent's life each time; at more of them with WHYIDLE_LONG=2."""
    moments = range(20) if STRESS else (0, 9)
    lines = [
        command(python, f"start(); time.sleep({n / 500})\n{ending}", tmp_path) for n in moments
    ]
    jobs = [
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for line in lines
    ]
    found = [(p.communicate(timeout=60)[0], p.returncode) for p in jobs]
    assert found == [(b"", 0)] * len(jobs)


def test_an_end_is_recorded_and_nothing_is_left(tmp_path: Path) -> None:
    source = "start(); until(reachable); ready(); sys.stdin.readline()"
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        client.ask("lease", read=0)
        process.communicate("end\n")
        assert client.is_hung_up()
        assert client.records()[-1][::2] == ["bye", "exit"]
        assert not list(client.home.iterdir())


def test_what_a_killed_job_wrote_stays(tmp_path: Path) -> None:
    source = "start(); until(reachable); ready(); sys.stdin.readline()"
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        client.wait_for("gauges")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert client.is_hung_up()
        client.offset = 0
        assert [r[0] for r in client.records()][:2] == ["hello", "clock"]
        assert client.spool.exists()


def test_signals_reach_the_job(tmp_path: Path) -> None:
    source = """
import signal
def told(*_): os.write(1, b"told\\n")
for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(s, told)
start(); until(reachable)
ready()
while True: time.sleep(20)
"""
    with job(source, tmp_path) as process:
        assert process.stdout is not None
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            process.send_signal(number)
            assert process.stdout.readline() == "told\n"


def test_an_exception_of_a_handler_is_never_lost_in_a_collection(tmp_path: Path) -> None:
    # Each signal comes while the collector runs; a hook in Python would swallow what is raised.
    source = """
import signal
start(); until(reachable)
class Told(Exception): pass
def told(*_): raise Told
signal.signal(signal.SIGUSR1, told)
class Dying:
    def __del__(self): os.kill(os.getpid(), signal.SIGUSR1)
"""
    probe = """
import ctypes
# A handler in C would be needed to signal without running Python: the main thread blocks it.
count = 0
def collect():
    global count
    try:
        gc.collect()
        for _ in range(1000): pass
    except Told:
        count += 1
pid = os.getpid()
import threading
for _ in range(50):
    killer = threading.Thread(target=os.kill, args=(pid, signal.SIGUSR1))
    try:
        killer.start(); gc.collect(); killer.join()
        for _ in range(1000): pass
    except Told:
        count += 1
        killer.join()
assert count == 50, count
"""
    run(sys.executable, source + probe, tmp_path)

"""What is set from outside goes back thread by thread, also when the monitor is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from whyidle.monitor.core.errors import NotPermitted
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.trying import thread_settings
from whyidle.monitor.trying.keeper import SILENT_SECONDS
from whyidle.monitor.trying.switches import COMMAND
from whyidle.monitor.trying.thread_settings import SETTINGS, Family, Held, Thread, may_renice

# A job with threads and a helper that has one, too; more begin when it is told.
JOB = """
import os, subprocess, sys, threading, time
def threads(n):
    for _ in range(n):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
threads(3)
helper = "import sys, threading, time; threading.Thread(target=time.sleep, args=(1000,)," \\
    "daemon=True).start(); print('there', flush=True); sys.stdin.read()"
def child():
    pipe = subprocess.PIPE
    one = subprocess.Popen([sys.executable, "-c", helper], stdin=pipe, stdout=pipe)
    one.stdout.readline()
    return one
children = [child()]
print("ready", flush=True)
for line in sys.stdin:
    threads(2)
    children.append(child())
    print("more", flush=True)
"""
ONE = {"affinity": [0], "nice": 15, "ionice": (2 << 13) | 7}


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", JOB]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def more(job: subprocess.Popen[str]) -> None:
    assert job.stdin is not None
    assert job.stdout is not None
    job.stdin.write("more\n")
    job.stdin.flush()
    assert job.stdout.readline() == "more\n"


def family(job: subprocess.Popen[str], *, helpers_only: bool = False) -> Family:
    fs = ProcFs()
    stat = fs.stat(job.pid)
    assert stat is not None
    return Family(ProcessKey(job.pid, stat.start_ticks), fs, helpers_only=helpers_only)


def values(job: subprocess.Popen[str], name: str) -> dict[Thread, Any]:
    return {t: SETTINGS[name].read(t.tid) for t in family(job).threads()}


def needs(name: str) -> None:
    if name == "affinity" and (os.cpu_count() or 1) < 2:
        pytest.skip("one core is all there is")
    if name == "nice" and not may_renice(ProcFs(), os.getpid(), 0):
        pytest.skip("what is made nicer could not be taken back")


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_each_thread_gets_back_what_it_had(name: str, job: subprocess.Popen[str]) -> None:
    needs(name)
    # One has something of its own.
    odd = family(job).threads()[2]
    SETTINGS[name].write(odd.tid, {"affinity": [1], "nice": 3, "ionice": (2 << 13) | 2}[name])
    before = values(job, name)
    held = Held(name, SETTINGS[name], family(job))
    assert held.apply(ONE[name]) == len(before)
    assert set(map(str, values(job, name).values())) == {str(ONE[name])}
    more(job)
    assert held.take_back() == 0
    after = values(job, name)
    assert {t: after[t] for t in before} == before
    # Those that began meanwhile had it from the first thread of all.
    first = before[next(t for t in before if t.tid == job.pid)]
    new = [after[t] for t in after if t not in before]
    assert len(new) == 4
    assert all(value == first for value in new)


def test_what_a_thread_sets_itself_meanwhile_stays(job: subprocess.Popen[str]) -> None:
    needs("affinity")
    held = Held("affinity", SETTINGS["affinity"], family(job))
    held.apply([0])
    own = family(job).threads()[1]
    os.sched_setaffinity(own.tid, [1])
    assert held.take_back() == 1
    assert os.sched_getaffinity(own.tid) == {1}


def test_helpers_alone(job: subprocess.Popen[str]) -> None:
    found = family(job, helpers_only=True).threads()
    assert len(found) == 2
    assert job.pid not in {t.pid for t in found}


def test_a_priority_that_could_not_be_given_back_is_not_taken(
    job: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_settings, "may_renice", lambda *_: False)
    before = values(job, "nice")
    held = Held("nice", SETTINGS["nice"], family(job, helpers_only=True))
    with pytest.raises(NotPermitted, match="priority back"):
        held.apply(19)
    assert values(job, "nice") == before


# Plays a monitor: asks the keeper, then waits to be killed.
MONITOR = """
import json, subprocess, sys, time
pipe = subprocess.PIPE
keeper = subprocess.Popen({command}, stdin=pipe, stdout=pipe, start_new_session=True)
keeper.stdin.write(json.dumps({asks}).encode() + b"\\n"); keeper.stdin.flush()
print(keeper.stdout.readline().decode(), flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_monitor_that_is_gone_leaves_nothing(how: str, job: subprocess.Popen[str]) -> None:
    needs("affinity")
    before = values(job, "affinity")
    key = family(job).root
    asks = {"do": "on", "setting": "affinity", "value": [0], "pid": key.pid,
            "start": key.start_ticks, "helpers": False}  # fmt: skip
    source = MONITOR.format(command=list(COMMAND), asks=asks)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as monitor:
        try:
            assert monitor.stdout is not None
            answer = json.loads(monitor.stdout.readline())
            assert answer["ok"], answer
            assert values(job, "affinity") != before
            monitor.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            deadline = time.monotonic() + SILENT_SECONDS + 10
            while values(job, "affinity") != before:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            monitor.kill()

"""A job that forks: it meets no thread of ours, and each child that lives has its own agent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agents.pythons import Client, ends_well, every_python, job, run
from tests.agents.test_life import LEAVE
from tests.longer import STRESS

# A child reports through its exit status; anything it prints fails the test.
CHILD = """
def child(work):
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return pid
def good(pid):
    return os.waitpid(pid, 0)[1] == 0
def fds():
    return len(os.listdir("/proc/self/fd"))
"""


@every_python
def test_a_fork_meets_no_thread_of_ours(python: str, tmp_path: Path) -> None:
    # Python 3.12 warns of threads, and every warning is an error here.
    source = (
        CHILD
        + LEAVE
        + """
before = fds()
core = start(); until(reachable); seen = []
os.register_at_fork(before=lambda: None, after_in_parent=lambda: seen.append(tasks()))
def short():
    assert fds() == before, os.listdir("/proc/self/fd")
    assert not gc.callbacks
    assert reachable(os.getppid())
for _ in range(20):
    assert good(child(short))
    assert reachable()
until(lambda: len(gc.callbacks) == 3)
leave(); until(lambda: tasks() == 1)
def plain():
    assert fds() == before and tasks() == 1
assert good(child(plain))
"""
    )
    run(python, source, tmp_path)


@every_python
def test_a_child_that_lives_has_an_agent_of_its_own(python: str, tmp_path: Path) -> None:
    source = (
        CHILD
        + """
start(); until(reachable)
def work():
    until(reachable)
    ready()
    sys.stdin.readline()
pid = child(work)
assert good(pid)
assert reachable()
"""
    )
    with job(source.replace("ready()\n", "print(os.getpid(), flush=True)\n", 1)
             .replace("start(); until(reachable)\n", "start(); until(reachable); ready()\n"),
             tmp_path, python) as process:  # fmt: skip
        assert process.stdout is not None
        child = int(process.stdout.readline())
        with Client(tmp_path, child) as client, Client(tmp_path, process.pid) as parent:
            hello = client.ask("hello")
            assert (hello["pid"], hello["ppid"]) == (child, process.pid)
            assert hello["method"] == "fork"
            leaf = client.wait_for("stacks")[4][0][1]
            assert leaf[2] == "work"
            assert parent.ask("hello")["pid"] == process.pid
        ends_well(process)


@every_python
def test_forks_in_every_state_of_the_agent(python: str, tmp_path: Path) -> None:
    """In more cases with WHYIDLE_LONG=2."""
    source = (
        CHILD
        + LEAVE
        + """
before = fds()
def short():
    assert fds() == before and not gc.callbacks
def nested():
    assert good(child(short))
for n in range(0, 30, STEP):
    start(grace=0.05)
    # While it opens, while it lives, while it detaches by itself.
    for _ in range(3):
        assert good(child(nested if n % 5 == 0 else short))
        time.sleep(0.0007 * n)
    until(lambda: not sys.modules["_whyidle_fork"].__dict__.get("agent"))
    until(lambda: tasks() == 1)
    assert fds() == before and not gc.callbacks
"""
    )
    run(python, source.replace("STEP", "1" if STRESS else "3"), tmp_path)


def test_threads_that_fork_at_once(tmp_path: Path) -> None:
    source = (
        CHILD
        + """
import threading
core = start(); until(reachable); failed = []
def forks():
    for _ in range(10):
        pid = os.fork()
        if not pid:
            os._exit(0 if not gc.callbacks else 1)
        if os.waitpid(pid, 0)[1]:
            failed.append(pid)
threads = [threading.Thread(target=forks) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert not failed
assert core.alive() and reachable()
until(lambda: tasks() == 2)
ready(); sys.stdin.readline()
"""
    )
    # From Python 3.12 on a job with threads of its own is warned when it forks.
    with job("import warnings; warnings.simplefilter('ignore')\n" + source, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert client.wait_for("gauges")
        ends_well(process)


@every_python
def test_pools_and_subprocesses_work_as_ever(python: str, tmp_path: Path) -> None:
    source = """
import multiprocessing as mp, subprocess
if __name__ == "__main__":
    start(); until(reachable)
    with mp.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
        pool.close(); pool.join()
    look = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    seen = subprocess.run([sys.executable, "-c", look],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, close_fds=False).stdout
    assert seen in (b"['0', '1', '2', '3']\\n",), seen
    subprocess.run([sys.executable, "-c", ""], preexec_fn=lambda: None, check=True)
"""
    run(python, source, tmp_path)


# A call without a line of Python sends the signal: its position decides when.
SIGNALLED = """
import signal, _thread, _functools
class Told(Exception): pass
ran = []
def told(number, _):
    ran.append(number)
    raise Told
signal.signal(signal.SIGINT, told if WHAT == "told" else signal.default_int_handler)
signal.signal(signal.SIGUSR1, told)
kind = KeyboardInterrupt if WHAT == "interrupt" else Told
number = signal.SIGUSR1 if WHAT == "user" else signal.SIGINT
send = _thread.interrupt_main if sys.version_info >= (3, 10) else signal.raise_signal
send = _functools.partial(send, number)
if WHEN == "after": os.register_at_fork(before=send)
start(); until(reachable)
if WHEN == "before": os.register_at_fork(before=send)
def fork():
    try:
        pid = os.fork()
        if not pid: os._exit(0)
        for _ in range(1000): pass
    except kind:
        os.wait()
        return True
for _ in range(20):
    assert fork()
    assert reachable()
if kind is Told: assert len(ran) == (20 if WHEN == "after" else 40), ran
until(lambda: tasks() == 2)
"""


@every_python
@pytest.mark.parametrize("what", ["interrupt", "told", "user"])
@pytest.mark.parametrize("when", ["after", "before"])
def test_what_a_handler_raises_during_a_fork_reaches_the_job(
    when: str, what: str, python: str, tmp_path: Path
) -> None:
    """After our first part it comes as usual; right before that the handler runs twice."""
    run(python, f"WHEN, WHAT = {when!r}, {what!r}\n" + SIGNALLED, tmp_path)


def test_exec_leaves_nothing_open(tmp_path: Path) -> None:
    source = """
start(); until(reachable)
look = "import os; print(len(os.listdir('/proc/self/fd')))"
os.execv(sys.executable, [sys.executable, "-c", look])
"""
    plain = source.replace("start(); until(reachable)\n", "")
    assert run(sys.executable, source, tmp_path) == run(sys.executable, plain, tmp_path)

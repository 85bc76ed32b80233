"""Jobs that take away what the agent needs: it leaves quietly and touches nothing of theirs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.agents.pythons import Client, ends_well, every_python, job, run
from tests.longer import STRESS


@every_python
def test_descriptors_that_the_job_closed_and_opened_again_are_the_jobs(
    python: str, tmp_path: Path
) -> None:
    # Every descriptor of the agent's becomes a file of the job's, or a pipe that is never read.
    source = """
core = start(); until(reachable); until(lambda: len(gc.callbacks) == 3)
def opened():
    links = {}
    for n in range(3, 100):
        try: links[n] = os.readlink("/proc/self/fd/%d" % n)
        except OSError: pass
    return links
# The last that it opens for good is its view of the main thread.
until(lambda: len(opened()) == 6 and any(name.endswith("/stat") for name in opened().values()))
ours = list(opened())
os.closerange(3, 100)
path = PARENT + "/job's own"
os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
held = []
while not held or held[-1] < max(ours):
    held.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
until(lambda: not core.alive()); until(lambda: tasks() == 1)
for n in held:
    assert os.fstat(n).st_size == 0
    os.close(n)
assert not gc.callbacks
"""
    run(python, source, tmp_path)


def test_a_job_out_of_descriptors_keeps_nobody_awake(tmp_path: Path) -> None:
    source = """
import resource
start(); until(reachable)
number = max(map(int, os.listdir("/proc/self/fd"))) + 1
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (number, most))
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
ready(); sys.stdin.readline()
before = time.process_time(); time.sleep(1.5)
print(time.process_time() - before, flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (number + 20, most))
sys.stdin.readline()
"""
    with job(source, tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with Client(tmp_path, process.pid) as client:
            process.stdin.write("one waits\n")
            process.stdin.flush()
            # A loop without a rest would have taken half of it or more.
            assert float(process.stdout.readline()) < 0.3
            assert client.ask("hello")["ok"]
        ends_well(process)


def test_files_that_the_job_removed_are_not_made_again(tmp_path: Path) -> None:
    source = """
import shutil
core = start(grace=0.5); until(reachable); until(lambda: len(gc.callbacks) == 3)
shutil.rmtree(os.path.dirname(mine()))
until(lambda: not core.alive()); until(lambda: tasks() == 1)
assert not os.path.exists(os.path.dirname(mine()))
"""
    run(sys.executable, source, tmp_path)


@pytest.mark.parametrize("change", ["clear", "replace", "reorder"])
def test_the_list_of_callbacks_is_the_jobs(change: str, tmp_path: Path) -> None:
    source = """
def own(*_): pass
core = start(grace=0.5); until(reachable); until(lambda: len(gc.callbacks) == 3)
change = CHANGE
if change == "clear": gc.callbacks.clear()
if change == "replace": gc.callbacks = [own]
if change == "reorder": gc.callbacks.insert(0, own); gc.callbacks.reverse()
for _ in range(10): gc.collect()
until(lambda: not core.alive()); until(lambda: tasks() == 1)
assert gc.callbacks == {"clear": [], "replace": [own], "reorder": [own]}[change]
"""
    run(sys.executable, source.replace("CHANGE", repr(change)), tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may")
@pytest.mark.parametrize("act", ["os.chroot(PARENT)", "os.setuid(65534)", "os.chdir(PARENT)"])
def test_another_root_user_or_place_changes_nothing(act: str, tmp_path: Path) -> None:
    source = "start(); until(reachable); ACT; ready(); sys.stdin.readline()"
    with job(source.replace("ACT", act), tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            assert client.wait_for("gauges")
            assert client.ask("leave")["ok"]
            assert client.is_hung_up()
            if "setuid" not in act:
                assert not list(client.home.iterdir())
        ends_well(process)


@every_python
def test_many_lives_leave_nothing_behind(python: str, tmp_path: Path) -> None:
    """Many more with WHYIDLE_LONG=2."""
    lives = 200 if STRESS else 22
    source = """
import atexit, random, threading
random.seed(4)
stop = []
def garbage():
    while not stop:
        junk = [[i] for i in range(500)]; junk.append(junk)
        time.sleep(0.02)
threads = [threading.Thread(target=garbage) for _ in range(2)]
def fork():
    pid = os.fork()
    if not pid: os._exit(len(gc.callbacks))
    assert os.waitpid(pid, 0)[1] == 0
def state():
    return (sorted(os.listdir("/proc/self/fd")), tasks(), gc.callbacks,
            sorted(m for m in sys.modules if m != "_whyidle_fork"))
import warnings; warnings.simplefilter("ignore", DeprecationWarning)
for t in threads: t.start()
before = count = None
for n in range(LIVES):
    core = start(grace=random.choice([0, 0.001, 0.005]))
    if n % 7 == 0: fork()
    if n % 5 == 0: gc.collect()
    if n % 3 == 0: time.sleep(random.random() / 500)
    until(lambda: not core.alive()); until(lambda: tasks() == 3)
    if n == 3: before, count = state(), atexit._ncallbacks()
stop.append(1)
for t in threads: t.join()
until(lambda: tasks() == 1)
after = state()
expected = (before[0], before[1] - 2, *before[2:])
assert after == expected, (after, expected)
# Until Python 3.14 what is taken out leaves an empty place.
assert sys.version_info < (3, 14) or atexit._ncallbacks() == count
left = os.listdir(os.path.dirname(mine()))
assert not left, left
"""
    run(python, source.replace("LIVES", str(lives)), tmp_path)

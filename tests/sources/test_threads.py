"""What the threads of a job want: from a /proc made by hand, and from live threads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources import threads
from whyidle.monitor.sources.threads import Threads, Wanted, cpus

FIRST, SECOND = ProcessKey(7, 5), ProcessKey(8, 5)
ALL = frozenset(range(8))
S = 10**9


def say(root: Path, key: ProcessKey, thread: int, times: tuple[int, int], mask: str) -> None:
    folder = root / str(key.pid) / "task" / str(thread)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(f"{times[0] * S} {times[1] * S} 9\n")
    (folder / "status").write_text(f"Name:\tpython\nCpus_allowed_list:\t{mask}\n")


def test_lists_of_the_kernel() -> None:
    assert cpus("0-3,8") == {0, 1, 2, 3, 8}
    assert cpus("5\n") == {5}
    assert cpus("") == cpus("none") == set()


def looked(root: Path, *live: ProcessKey, online: frozenset[int] = ALL) -> Wanted:
    """Look twice, ten seconds apart; each thread but 99 has run 2 s and waited 3 s meanwhile."""
    follow, fs = Threads(), ProcFs(str(root))
    assert follow.look(fs, 100.0, live, online) is None
    for schedstat in root.glob("*/task/*/schedstat"):
        ran, waited, _ = schedstat.read_text().split()
        more = (0, 0) if schedstat.parent.name == "99" else (2, 3)
        schedstat.write_text(f"{int(ran) + more[0] * S} {int(waited) + more[1] * S} 9\n")
    found = follow.look(fs, 110.0, live, online)
    assert found is not None
    return found


def test_what_waits_and_whose_it_is(tmp_path: Path) -> None:
    for thread in (7, 70):
        say(tmp_path, FIRST, thread, (50, 1), "0-1")
    say(tmp_path, SECOND, 8, (50, 1), "1-2")
    found = looked(tmp_path, FIRST, SECOND)
    assert found.waiting == pytest.approx(0.9)
    # Two threads want half a core each; one wants half a core: both processes compute.
    assert found.processes == 2
    assert found.cores == {0, 1, 2}


def test_threads_that_sleep_want_nothing_and_are_asked_nothing(tmp_path: Path) -> None:
    say(tmp_path, FIRST, 7, (50, 1), "3")
    say(tmp_path, FIRST, 99, (50, 1), "0-7")
    found = looked(tmp_path, FIRST)
    assert found.cores == {3}
    assert found.waiting == pytest.approx(0.3)


def test_a_mask_may_name_cores_that_there_are_not(tmp_path: Path) -> None:
    say(tmp_path, FIRST, 7, (50, 1), "0-255")
    assert looked(tmp_path, FIRST, online=frozenset({0, 1})).cores == {0, 1}


def test_a_thread_that_is_new_or_gone_counts_from_the_next_look_on(tmp_path: Path) -> None:
    follow, fs = Threads(), ProcFs(str(tmp_path))
    say(tmp_path, FIRST, 7, (0, 0), "0")
    follow.look(fs, 1.0, [FIRST, SECOND], ALL)
    say(tmp_path, SECOND, 8, (3000, 3000), "1")
    found = follow.look(fs, 2.0, [FIRST, SECOND], ALL)
    assert found == Wanted(0.0, 0, frozenset())


def test_more_threads_than_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST_THREADS", 2)
    for thread in range(3):
        say(tmp_path, FIRST, 70 + thread, (0, 0), "0")
    follow = Threads()
    follow.look(ProcFs(str(tmp_path)), 1.0, [FIRST], ALL)
    assert follow.too_many


BUSY = r"""
import os, subprocess, sys, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for each in range(64):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
spin = "import os\nhere = os.getppid()\nwhile os.getppid() == here: sum(range(1000))"
children = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
for child in children:
    child.kill()
"""


def test_two_processes_on_one_core_beside_threads_that_sleep() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        pids = [job.pid, *map(int, job.stdout.readline().split())]
        live, fs, follow = [ProcessKey(pid, 0) for pid in pids], ProcFs(), Threads()
        online = frozenset(range(os.cpu_count() or 1))
        follow.look(fs, time.monotonic(), live, online)
        time.sleep(1.0)
        began = time.perf_counter()
        found = follow.look(fs, time.monotonic(), live, online)
        took = time.perf_counter() - began
        job.communicate("")
    assert found is not None
    assert found.cores == {min(os.sched_getaffinity(0))}
    # Of two that share a core one waits at any time; other programs keep them waiting longer.
    assert 0.7 < found.waiting <= 2.1
    # 67 threads: 8 us each, and what a machine that does other things adds.
    assert took < 0.05

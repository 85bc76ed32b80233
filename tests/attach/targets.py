"""Processes to enter, of whatever Pythons are here, and what an untouched one looks like."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents.pythons import interpreters
from tests.conftest import ROOT
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target

Job = subprocess.Popen[str]
# Works, says so, and never ends by itself. It says so seldom: a full pipe would block it, and what
# releases the GIL for a moment, again and again within 5 ms, keeps other threads from it.
BUSY = """
print("ready", flush=True)
number = 0
while True:
    number += 1
    for _ in range(1000):
        [object() for _ in range(1000)]
    print(number, flush=True)
"""
# Its main thread is outside of Python until it is told to go on.
ASLEEP = """
import sys
import time
print("ready", flush=True)
sys.stdin.readline()
for number in range(20000): [number]
print("end", flush=True)
"""
# Bare Pythons have no framework: a file of the right name, mapped, looks like one from outside.
AS_TORCH = """
import mmap, tempfile, os
_folder = tempfile.mkdtemp()
with open(_folder + "/libtorch_cpu.so", "w+b") as _file:
    _file.write(b"x" * 4096); _file.flush()
    _mapped = mmap.mmap(_file.fileno(), 0)
os.unlink(_folder + "/libtorch_cpu.so"); os.rmdir(_folder)
"""


def target_of(pid: int, fs: ProcFs | None = None, *, start_ticks: int | None = None) -> Target:
    fs = fs or ProcFs()
    stat = fs.stat(pid)
    known = stat.start_ticks if stat is not None else 1
    return Target(ProcessKey(pid, known if start_ticks is None else start_ticks), fs)


def start(command: list[str], **options: object) -> Job:
    job = subprocess.Popen(  # type: ignore[call-overload]
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    if job.stdout.readline() != "ready\n":
        job.kill()
        pytest.fail(job.communicate()[1])
    found: Job = job
    return found


@contextmanager
def running(source: str = BUSY, python: list[str] | None = None) -> Iterator[Job]:
    job = start([*(python or [sys.executable]), "-c", source])
    try:
        yield job
    finally:
        job.kill()
        job.communicate()


def goes_on(job: Job) -> None:
    """Read what a BUSY job says until it says something new."""
    assert job.stdout is not None
    first = int(job.stdout.readline())
    assert int(job.stdout.readline()) == first + 1


def wait_until_asleep(job: Job) -> None:
    """Wait until an ASLEEP job waits for its input: on x86-64 that is call 0 on file 0."""
    while not (ProcFs().text(f"{job.pid}/syscall") or "").startswith("0 0x0 "):
        time.sleep(0.001)


def tracer_of(pid: int) -> str:
    return ProcFs().fields(f"{pid}/status")["TracerPid"]


def mapped(pid: int) -> set[tuple[str, ...]]:
    """Return what is mapped, without what grows by itself."""
    found = set()
    for line in (ProcFs().text(f"{pid}/maps") or "").splitlines():
        words = line.split(None, 5)
        if len(words) > 5 and words[5].startswith("/"):
            found.add((words[0], words[1], words[5]))
    return found


def others() -> list[str]:
    """Return one Python of each version that a job may run on."""
    found: dict[str, str] = {}
    for path in interpreters():
        asked = "import sys; print(sys.version_info[:2])"
        done = subprocess.run([path, "-c", asked], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found.setdefault(done.stdout, path)
    return list(found.values())


@functools.cache
def _copied(root: Path) -> Path:
    """Return a copy of a root that may only be read: a job's own /tmp must take files."""
    folder = Path(tempfile.mkdtemp(prefix="python3.14-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(shutil.copytree(root, folder / "root", symlinks=True))


def python314() -> list[str]:
    """Return how to start Python 3.14 here; skips the test where there is none."""
    # What .ci/python3.14 made, or another root like it.
    root = Path(os.environ.get("WHYIDLE_PYTHON314_ROOT", ROOT / ".venv" / "python3.14"))
    if os.geteuid() == 0 and (root / "usr/bin/python3.14").exists():
        if not os.access(root / "tmp", os.W_OK):
            root = _copied(root)
        return ["chroot", str(root), "/usr/bin/python3.14", "-I", "-S"]
    found = shutil.which("python3.14")
    if found is None or "/shims/" in found:
        pytest.skip("needs Python 3.14: on the path, or from .ci/python3.14")
    return [found]

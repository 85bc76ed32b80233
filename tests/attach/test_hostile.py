"""A hostile job: what it says of itself costs us little, blocks nobody and controls nothing."""

from __future__ import annotations

import os
import shlex
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest

from tests.attach.targets import AS_TORCH, Job, running, start, target_of
from tests.conftest import Monitor
from whyidle.monitor.app import jobs
from whyidle.monitor.attach import existing, ladder, precheck
from whyidle.monitor.attach.answers import PTRACE
from whyidle.monitor.attach.ptrace import maps
from whyidle.monitor.attach.ptrace.elf import Image, image
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.refused import Refused
from whyidle.monitor.attach.ptrace.region import borrowed
from whyidle.monitor.attach.ptrace.registers import MAX
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, files_in
from whyidle.monitor.render.console import say

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only")


@pytest.mark.parametrize("end", "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r")
def test_a_name_with_another_end_of_line_is_one_name(end: str) -> None:
    forged = f"/tmp/a{end}00400000-00401000 r-xp 00000000 08:01 11 /usr/lib/libpython3.11.so"
    text = f"7f0000000000-7f0000100000 r--s 00000000 08:01 12 {forged}\nnonsense\n\n"
    assert [m.path for m in maps.parse(text)] == [forged]
    assert files_in(text) == {forged}


def header_of(*segments: tuple[int, ...]) -> bytes:
    head = bytearray(64)
    head[:5], head[18], head[32] = b"\x7fELF\2", 62, 64
    struct.pack_into("<HH", head, 54, 56, len(segments))
    return bytes(head) + b"".join(struct.pack("<IIQQQQQQ", *s) for s in segments)


def test_no_more_is_read_than_real_libraries_have() -> None:
    huge = 1 << 40
    data = header_of((1, 5, 0, 0, 0, huge, huge, 4096), (2, 4, 64, 64, 64, huge, huge, 8))
    asked = []

    def read(address: int, size: int) -> bytes:
        asked.append(size)
        return data[address : address + size].ljust(size, b"\0")

    assert image(read, 0).function("PyGILState_Ensure") is None
    assert max(asked) <= 64 << 10


def test_a_chain_of_symbols_without_an_end_is_left() -> None:
    tables = {5: 4096, 6: 8192}
    for kind in (4, 0x6FFFFEF5):
        reads = []

        def read(address: int, size: int, seen: list[int] = reads) -> bytes:  # type: ignore[assignment]
            seen.append(size)
            return b"\2\0\0\0" * (size // 4) + bytes(size % 4)

        assert Image(read, 0, {**tables, kind: 1 << 20}).function("Py_IsInitialized") is None
        assert len(reads) < 20_000


def test_an_address_beyond_all_memory_has_none() -> None:
    with Memory(os.getpid()) as ours:
        for where in (-1, 1 << 63, MAX):
            with pytest.raises(OSError, match="no memory at"):
                ours.read(where, 8)


def test_of_what_calls_itself_a_c_library_a_piece_is_searched() -> None:
    class Fake:
        sizes: ClassVar[list[int]] = []

        def read(self, address: int, size: int) -> bytes:
            self.sizes.append(size)
            return bytes(size)

    parts = tuple(
        maps.Mapping(n << 40, (n << 40) + (10 << 20), "r-xp", 0, "/tmp/libc.so.6")
        for n in range(1, 9)
    )
    with pytest.raises(Refused):
        borrowed(parts, "/tmp/libc.so.6", Fake())  # type: ignore[arg-type]
    assert sum(Fake.sizes) == 16 << 20


def test_one_monitor_at_a_time_has_a_memory_for_itself() -> None:
    with Memory(os.getpid(), writing=True) as first, Memory(os.getpid(), writing=True) as second:
        with first.alone(), pytest.raises(BlockingIOError), second.alone():
            pass
        with second.alone():
            pass


# In the place of an agent: what is asked there never answers.
SILENT = """
import os, socket
from whyidle.agents import wire
kept = []
for folder in wire.FOLDERS:
    try:
        place = f"{folder}/{wire.folder_name(os.getuid())}"
        os.makedirs(place, 0o700, exist_ok=True)
        path = f"{place}/{wire.socket_name(os.getpid())}"
        kept.append((path, socket.socket(socket.AF_UNIX)))
        kept[-1][1].bind(path)
        kept[-1][1].listen(0)
    except OSError:
        pass
print("ready", flush=True)
input()
for path, _ in kept:
    os.unlink(path)
"""


@contextmanager
def silent() -> Iterator[Job]:
    job = start([sys.executable, "-c", AS_TORCH + SILENT])
    try:
        yield job
    finally:
        job.communicate("\n")


def test_silent_sockets_do_not_keep_a_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def spying(key: ProcessKey, fs: ProcFs, seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(existing.Link, "open", spying)
    with silent() as job:
        target = target_of(job.pid)
        sockets = existing._sockets(target)
        assert sockets > 0
        assert existing.refusal(target, 0.2) == existing.NOT_THERE
        # All sockets there share the time; with none left, no more are asked.
        assert asked == [0.2 / sockets]
        assert existing.refusal(target, 0.0) == existing.NOT_ASKED
        assert ladder.best(ladder.rungs(target, -1.0)).name == PTRACE
        monkeypatch.setattr(jobs, "AGENTS_SECONDS", 0.0)
        asked.clear()
        assert next(j for j in jobs.find_jobs().jobs if j.identity.key == target.key).attach
        assert asked == []
    with running() as job:
        # There is no socket: that is known without asking.
        assert existing.refusal(target_of(job.pid), 0.0) == existing.NOT_THERE


@pytest.mark.skipif(
    ProcFs().fields("self/status").get("Seccomp") != "0",
    reason="seccomp filters these tests already, as in many containers",
)
def test_what_a_job_calls_itself_does_not_steer_a_terminal(monitor: Monitor) -> None:
    # Strict seccomp bars the injector: the doctor says what to run instead.
    strict = """
import ctypes, os
libc, byte = ctypes.CDLL(None), ctypes.create_string_buffer(1)
os.write(1, b"ready\\n")
libc.prctl(22, 1, 0, 0, 0)
libc.read(0, byte, 1)
"""
    job = start([sys.executable, "-c", AS_TORCH + strict, "\x1b]0;owned\x07"])
    while ProcFs().fields(f"{job.pid}/status").get("Seccomp") != "1":
        assert job.poll() is None
    try:
        output = monitor("doctor", job.pid).stdout
        assert "\x1b" not in output
        assert "\\x1b]0;owned" in output
        assert "attach ptrace      closed: It may make no system calls" in output
    finally:
        job.kill()
        job.communicate()


def test_what_is_said_to_a_person_does_not_steer_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say("no \x1b[2J job", "kill \x07")
    assert capsys.readouterr().err == "monitor: no \\x1b[2J job\n  kill \\x07\n"


def test_what_to_run_instead_does_nothing_else_when_it_is_pasted() -> None:
    hostile = ["x; rm -rf ~", "$(id)", "a\nb", "`id`"]
    with running_as(sys.executable, "-c", "print('ready', flush=True); input()", *hostile) as job:
        target = target_of(job.pid)
        arguments = target.identity.arguments if target.identity else ()
        line = precheck.run_instead(target)
    assert arguments[-4:] == tuple(hostile)
    # The program's own line comes first, and what is left out is left out whole.
    words = shlex.split(line)
    assert words[-1] == "…"
    assert words[3:-1] == [" ".join(a.split()) for a in arguments[: len(words) - 4]]
    with running_as("python", "-c", "print('ready', flush=True); input()", "x; id") as job:
        line = precheck.run_instead(target_of(job.pid))
    assert line == ("monitor run -- python -c 'print('\"'\"'ready'\"'\"', flush=True); input()' …")


@contextmanager
def running_as(name: str, *arguments: str) -> Iterator[Job]:
    job = start([name, *arguments], executable=sys.executable)
    try:
        yield job
    finally:
        job.communicate("\n")

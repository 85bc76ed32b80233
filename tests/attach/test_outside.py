from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.attach.targets import running, target_of, tracer_of
from whyidle.monitor.attach import outside
from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.attach.outside import PySpySampler, SampledLine, sampled_lines
from whyidle.monitor.processes.procfs import ProcFs

FS = ProcFs()
# As py-spy 0.4 writes them.
COLLAPSED = """\
thread (70): MainThread;<module> (/home/u/train.py:90);step (/home/u/train.py:41) 30
thread (70): MainThread;<module> (/home/u/train.py:90);load (/usr/lib/python3.11/ast.py:231) 4
thread (70): MainThread;<module> (/home/u/train.py:90);forward (/v/site-packages/torch/nn.py:5) 6
thread (70): MainThread;_find (<frozen importlib._bootstrap>:1027);made (<string>:2) 2
thread (71): Thread-1 (load);load (/home/u/train.py:12) 40
thread (0x7F31);other (/home/u/train.py:13) 40
odd line
thread (70): MainThread;name with spaces (/home/u/my code (old)/a.py:7) 1
thread (70): MainThread;no_line (/home/u/b.py) x
"""
WORK = """
def inner():
    for n in range(1000): [n]
def train():
    print("ready", flush=True)
    while True: inner()
train()
"""


def test_the_users_innermost_lines_of_the_main_thread_are_counted() -> None:
    assert sampled_lines(COLLAPSED, 70) == [
        SampledLine("/home/u/train.py", 41, "step", 30),
        SampledLine("/home/u/train.py", 90, "<module>", 10),
        SampledLine("/home/u/my code (old)/a.py", 7, "name with spaces", 1),
    ]


def test_without_a_name_the_first_thread_is_the_main_one() -> None:
    assert sampled_lines("thread (70);f (/u/a.py:3) 2\nthread (71);g (/u/a.py:9) 5\n", 70) == [
        SampledLine("/u/a.py", 3, "f", 2)
    ]


@pytest.fixture
def installed() -> None:
    if outside.refusal() is not None:
        pytest.skip("needs py-spy")


def test_a_job_is_sampled_without_being_stopped(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "FIRST_ROUND_SECONDS", 1)
    script = tmp_path / "train.py"
    script.write_text(WORK)
    with running(f"exec(compile(open({str(script)!r}).read(), {str(script)!r}, 'exec'))") as job:
        traced: set[str] = set()
        with looking_at(job.pid) as samples:
            assert samples.refused is None

            def sampled() -> list[SampledLine]:
                assert samples.refused is None
                traced.add(tracer_of(job.pid))
                return samples.poll()

            found = until(sampled)
        assert job.poll() is None
    assert traced == {"0"}
    assert {place.function for place in found} <= {"inner", "train", "<module>"}
    assert {place.file for place in found} == {str(script)}
    assert found[0].samples > 0


def test_what_py_spy_cannot_do_is_a_reason(installed: None) -> None:
    # A program without Python.
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            with looking_at(other.pid) as samples:
                refused = until(lambda: samples.poll() or samples.refused)
                assert samples.poll() == []
        finally:
            other.kill()
    assert isinstance(refused, Refusal)
    assert f"py-spy cannot look into process {other.pid}" in refused.what


def test_a_process_that_has_ended_is_not_sampled(installed: None) -> None:
    with running() as job:
        key = target_of(job.pid).key
    samples = PySpySampler(key, FS)
    assert (samples.poll(), samples._folder) == ([], None)


def ending_at_once(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    program = folder / "py-spy"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(outside, "_py_spy", lambda: str(program))


def test_a_folder_that_vanishes_is_a_reason_given_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_at_once(monkeypatch, tmp_path)
    with running() as job, looking_at(job.pid) as samples:
        assert samples._folder is not None
        shutil.rmtree(samples._folder)
        refused = until(lambda: samples.poll() or samples.refused)
        assert (samples.poll(), samples.refused) == ([], refused)
    assert isinstance(refused, Refusal)
    assert "it ended with 3" in refused.what


@pytest.mark.parametrize("missing", ["program", "folder"])
def test_what_cannot_be_started_is_a_reason(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_at_once(monkeypatch, tmp_path)
    if missing == "program":
        monkeypatch.setattr(outside, "_py_spy", lambda: str(tmp_path / "nothing"))
    else:
        monkeypatch.setattr(outside.tempfile, "tempdir", str(tmp_path / "nothing"))
    with running() as job, looking_at(job.pid) as samples:
        assert samples.poll() == []
        assert samples.refused is not None
        assert "No such file" in samples.refused.what


def test_no_more_is_read_than_can_be_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "MOST_BYTES", 10)
    (tmp_path / "stacks").write_bytes(b"x" * 1000)
    assert outside._text(tmp_path / "stacks") == "x" * 10


def test_folders_of_killed_monitors_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside.tempfile, "tempdir", str(tmp_path))
    gone = ended_pid()
    names = [f"{outside.PREFIX}{pid}-abc" for pid in (gone, os.getpid())]
    names += [f"{outside.PREFIX}mine", f"{outside.PREFIX}{gone}-new"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "stacks").touch()
        if not name.endswith("-new"):
            os.utime(tmp_path / name, (0, 0))
    link = tmp_path / f"{outside.PREFIX}{gone}-link"
    link.symlink_to(tmp_path / names[1])
    outside._tidy()
    assert {path.name for path in tmp_path.iterdir()} == {*names[1:], link.name}


def ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


T = TypeVar("T")


def until(attempt: Callable[[], T]) -> T:
    deadline = time.monotonic() + 20
    while not (found := attempt()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@contextmanager
def looking_at(pid: int) -> Iterator[PySpySampler]:
    samples = PySpySampler(target_of(pid).key, FS)
    try:
        yield samples
    finally:
        samples.close()


def test_its_child_and_files_do_not_outlive_it(installed: None) -> None:
    with running() as job:
        samples = PySpySampler(target_of(job.pid).key, FS)
        child, folder = samples._child, samples._folder
        samples.close()
    assert child is not None
    assert child.returncode is not None
    assert folder is not None
    assert not folder.exists()


def test_without_py_spy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_py_spy", lambda: None)
    with running() as job:
        samples = PySpySampler(target_of(job.pid).key, FS)
        assert samples.poll() == []
        samples.close()
    assert samples.refused is not None
    assert "not installed" in samples.refused.what
    assert "py-spy" in samples.refused.next_step

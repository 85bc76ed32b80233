"""A process by the name of its script: the right one, none, several, and one that comes later."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import JOB
from whyidle.monitor.core.errors import TargetGone, UsageProblem
from whyidle.monitor.processes import by_name

FORKS = """
import os, sys
child = os.fork()
print("ready", flush=True) if child else None
sys.stdin.read() if child else os.read(os.pipe()[0], 1)
os.kill(child, 9)
"""
Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a script of this name; returns its pid."""
    with ExitStack() as running:

        def go(name: str, *arguments: str, source: str = JOB) -> int:
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, path, *arguments], text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert process.stdin is not None
            running.callback(process.stdin.close)
            return process.pid

        yield go


def test_the_one_process_that_runs_it(start: Start) -> None:
    pid = start("only_one_of_tests.py", "--lr", "1")
    assert by_name.find("only_one_of_tests.py").pid == pid
    # A name among the arguments of another program is no script of its.
    start("another_of_tests.py", "only_one_of_tests.py")
    assert by_name.find("only_one_of_tests.py").pid == pid


def test_what_it_has_started_itself_is_no_other(start: Start) -> None:
    pid = start("forking_of_tests.py", source=FORKS)
    assert by_name.find("forking_of_tests.py").pid == pid


def test_several_are_listed_and_none_is_chosen(start: Start) -> None:
    one, two = start("twice_of_tests.py"), start("twice_of_tests.py", "--seed", "2")
    with pytest.raises(UsageProblem) as problem:
        by_name.find("twice_of_tests.py")
    assert str(one) in problem.value.what
    assert f"{two} (" in problem.value.what


def test_folders_tell_two_of_one_name_apart(start: Start) -> None:
    start("a/same_of_tests.py")
    pid = start("b/same_of_tests.py")
    assert by_name.find("b/same_of_tests.py").pid == pid


@pytest.mark.parametrize("name", ["nobody_runs_this.py", "only_one", ".py", "python"])
def test_none_runs_it(start: Start, name: str) -> None:
    start("only_one_of_tests.py")
    with pytest.raises(TargetGone):
        by_name.find(name)


def test_one_that_is_not_there_yet_is_waited_for(start: Start) -> None:
    found: list[int] = []
    waiting = threading.Thread(
        target=lambda: found.append(by_name.wait_for("late_of_tests.py").pid), daemon=True
    )
    waiting.start()
    pid = start("late_of_tests.py")
    waiting.join(timeout=20)
    assert found == [pid]

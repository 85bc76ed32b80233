"""The stack of a running job, read from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.agents.pythons import every_python
from tests.attach.targets import Job, python314, running, start, target_of, tracer_of
from tests.conftest import ROOT
from whyidle.agents.wire import STACK_DEPTH
from whyidle.monitor.attach.stack_reader.reader import Stack, StackReader
from whyidle.monitor.attach.stack_reader.unreadable import Ended, Unreadable

# The job tells what part of its time it has measured in what is looked for.
TELLS = """
import signal, sys, time
spent = [0.0, 0.0]
def tell(*_):
    print(spent[0] / sum(spent), flush=True)
signal.signal(signal.SIGUSR1, tell)
"""
# 70% of its time in a helper of nothing but Python, in stretches of 2 ms that let go of no lock.
KNOWN = (
    TELLS
    + """def helper(until):
    number = 0
    while time.perf_counter() < until:
        number += 1
        number %= 7
def sleep(seconds):
    time.sleep(seconds)
def train():
    print("ready", flush=True)
    while True:
        began = time.perf_counter()
        helper(began + 0.002)
        worked = time.perf_counter()
        sleep(max(0, (worked - began) * 3 / 7 - 0.00007))
        spent[0] += worked - began
        spent[1] += time.perf_counter() - worked
train()
"""
)


@contextmanager
def script(source: str, folder: Path, python: list[str] | None = None) -> Iterator[Job]:
    path = folder / "train.py"
    path.write_text(source)
    job = start([*(python or [sys.executable]), str(path)])
    try:
        yield job
    finally:
        job.kill()
        job.communicate()


def share_of_helper(job: Job) -> float:
    """Return the share of its time that the job itself measured in its helper."""
    assert job.stdout is not None
    os.kill(job.pid, signal.SIGUSR1)
    return float(job.stdout.readline())


@contextmanager
def reading(job: Job, folder: Path) -> Iterator[StackReader]:
    reader = StackReader(target_of(job.pid), lambda file: file.startswith(str(folder)))
    try:
        yield reader
    finally:
        reader.close()


def taken(reader: StackReader, count: int, pause: float = 0.0013) -> list[Stack]:
    found = []
    for turn in range(count):
        # Never in step with the job.
        time.sleep(pause * (1 + turn % 17 / 10))
        if (stack := reader.sample()) is not None:
            found.append(stack)
    return found


# 60% of its time in short functions, one after the other, as a library in Python has them.
SHORT = (
    TELLS
    + """names = range(8_000)
exec("".join(f"def f{n}(x):\\n    for _ in '{n:99}':\\n        x += 1\\n" for n in names))
short = [globals()[f"f{n}"] for n in names]
numbers = list(range(60_000, 0, -1))
def library(until):
    while time.perf_counter() < until:
        for each in short:
            each(1)
def train():
    print("ready", flush=True)
    while True:
        began = time.perf_counter()
        library(began + 0.0015)
        worked = time.perf_counter()
        while time.perf_counter() < worked + 0.001:
            sum(numbers)
        spent[0] += worked - began
        spent[1] += time.perf_counter() - worked
train()
"""
)


def test_short_functions_are_found_as_often_as_they_run(tmp_path: Path) -> None:
    with script(SHORT, tmp_path) as job, reading(job, tmp_path) as reader:
        found, truth = taken(reader, 300, pause=0.01), share_of_helper(job)
    assert reader.torn < 0.05 * len(found)
    within = sum("library" in [place.function for place in stack.users] for stack in found)
    assert within / len(found) == pytest.approx(truth, abs=0.12)


def test_the_loop_of_a_library_says_which_part_of_a_job_it_is(tmp_path: Path) -> None:
    loops = {"train": "worker", "helper": "nobody"}
    with script(KNOWN, tmp_path) as job:
        reader = StackReader(
            target_of(job.pid), lambda _: False, lambda _, function: loops.get(function)
        )
        found = taken(reader, 50)
        reader.close()
    # Of what is within it the outermost holds.
    assert {stack.part for stack in found} == {"worker"}


@every_python
def test_shares_lines_and_waits_are_those_of_the_job(python: str, tmp_path: Path) -> None:
    with script(KNOWN, tmp_path, [python]) as job, reading(job, tmp_path) as reader:
        found, truth = taken(reader, 1500), share_of_helper(job)
        assert tracer_of(job.pid) == "0"
    assert reader.torn < 0.02 * len(found)
    shares = Counter(stack.leaf.function for stack in found)
    assert set(shares) <= {"helper", "sleep", "train"}
    # Where all cores are taken, we get one when the job sleeps: then that is seen too often.
    assert shares["helper"] / len(found) == pytest.approx(truth, abs=0.15)
    lines = [(place.function, place.line) for stack in found for place in stack.users]
    functions = {"helper": range(8, 12), "sleep": (13,), "train": range(16, 23), "<module>": (23,)}
    wrong = [x for x in lines if x != ("tell", 5) and x[1] not in functions.get(x[0], ())]
    # Nothing stops while it is read: a frame may go to its next line meanwhile.
    assert len(wrong) <= 0.01 * len(lines), Counter(wrong)
    asleep = [stack.waits for stack in found if stack.leaf.function == "sleep"]
    awake = [stack.waits for stack in found if stack.leaf.function == "helper"]
    # There it also wants a core for a while after its sleep, and waits for nothing else.
    assert sum(map(bool, asleep)) > 0.2 * len(asleep)
    assert sum(map(bool, awake)) < 0.05 * len(awake)
    assert Counter(len(stack.users) for stack in found if stack.leaf.function == "helper")[3]


@every_python
def test_deep_recursion_and_generators_are_followed(python: str, tmp_path: Path) -> None:
    source = """
import time
def made():
    while True:
        for _ in range(100): pass
        yield 1
def deep(n):
    if n:
        return deep(n - 1)
    print("ready", flush=True)
    for _ in (each for each in made()):
        pass
deep(900)
"""
    with script(source, tmp_path, [python, "-X", "dev"]) as job, reading(job, tmp_path) as reader:
        found = taken(reader, 100)
    # "-X dev" changes how objects are allocated, and not where their parts lie.
    assert len(found) > 80
    assert {stack.leaf.function for stack in found} <= {"made", "<genexpr>", "deep"}
    inside = next(stack for stack in found if stack.leaf.function == "made")
    assert [place.function for place in inside.users] == [
        *("made", "<genexpr>"), *["deep"] * (STACK_DEPTH - 2),
    ]  # fmt: skip
    assert {place.line for place in inside.users[3:]} == {9}


def test_what_the_users_line_called_stands_beside_it(tmp_path: Path) -> None:
    source = """
import json
print("ready", flush=True)
while True:
    json.loads('[{"a": [1, 2, 3]}]' * 1)
    json.dumps([1, 2, 3], indent=1)
"""
    with script(source, tmp_path) as job, reading(job, tmp_path) as reader:
        found = [stack for stack in taken(reader, 1000) if stack.called is not None]
    # Its functions take microseconds, and still none of their stacks is cut off.
    called = [stack.called for stack in found if stack.users and stack.called is not None]
    assert len(called) > 0.98 * len(found)
    known = [place for place in called if place.function in {"loads", "dumps"}]
    assert len(known) > 0.95 * len(called)
    assert {stack.users[0].line for stack in found if stack.users} <= {4, 5, 6}
    assert all(place.file.endswith("json/__init__.py") for place in known)


def test_names_that_are_not_ascii_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "späße-日本-😀"
    folder.mkdir()
    source = 'def größe():\n    print("ready", flush=True)\n    while True: pass\ngröße()\n'
    with script(source, folder) as job, reading(job, tmp_path) as reader:
        found = taken(reader, 20)
    leaves = {stack.leaf for stack in found}
    assert {leaf[::2] for leaf in leaves} == {(str(folder / "train.py"), "größe")}
    # A line earlier it still ends what it prints.
    assert {3} <= {leaf.line for leaf in leaves} <= {2, 3}


@every_python
def test_a_thread_that_wants_the_lock_does_not_wait(python: str, tmp_path: Path) -> None:
    source = """
import threading, time
def other():
    while True: pass
threading.Thread(target=other, daemon=True).start()
print("ready", flush=True)
while True:
    for _ in range(1000): pass
"""
    with script(source, tmp_path, [python]) as job, reading(job, tmp_path) as reader:
        found = taken(reader, 200)
    # It sleeps for the lock half of the time.
    assert sum(bool(stack.waits) for stack in found) < 0.05 * len(found)
    wanted = [stack for stack in found if stack.wants_lock]
    assert len(wanted) > 0.2 * len(found)
    seen = [stack.holder for stack in wanted if stack.holder is not None]
    assert len(seen) > 0.5 * len(wanted)
    assert {(leaf.function, leaf.line) for leaf, _, _ in seen} == {("other", 4)}


@pytest.mark.parametrize("then", ["os._exit(0)", "os.execvp('sleep', ['sleep', '60'])"])
def test_a_program_that_ends_ends_the_sampling(then: str, tmp_path: Path) -> None:
    source = 'import os, sys\nprint("ready", flush=True)\nsys.stdin.readline()\n' + then
    with script(source, tmp_path) as job, reading(job, tmp_path) as reader:
        assert reader.sample() is not None
        assert job.stdin is not None
        job.stdin.write("end\n")
        job.stdin.flush()
        with pytest.raises(Ended):
            until(lambda: reader.sample() and None)


@every_python
def test_a_fork_is_read_as_the_process_that_it_is(python: str, tmp_path: Path) -> None:
    source = """
import os, sys, time
def parent():
    while True: time.sleep(0.001)
def child():
    os.write(1, b"ready\\n")
    while True: time.sleep(0.001)
pid = os.fork()
if pid:
    os.write(1, b"%d\\n" % pid)
    parent()
child()
"""
    path = tmp_path / "train.py"
    path.write_text(source)
    with subprocess.Popen([python, str(path)], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        other = 0
        try:
            said = {job.stdout.readline().strip(), job.stdout.readline().strip()}
            other = int((said - {"ready"}).pop())
            for pid, function in ((job.pid, "parent"), (other, "child")):
                reader = StackReader(target_of(pid), lambda _: True)
                found = taken(reader, 20)
                reader.close()
                assert {stack.users[-2].function for stack in found} == {function}
        finally:
            job.kill()
            if other:
                os.kill(other, signal.SIGKILL)


def test_a_stopped_job_says_nothing(tmp_path: Path) -> None:
    with script(KNOWN, tmp_path) as job, reading(job, tmp_path) as reader:
        os.kill(job.pid, signal.SIGSTOP)
        until(lambda: reader.sample() is None)
        before = reader.taken, reader.torn
        assert taken(reader, 10) == []
        assert (reader.taken, reader.torn) == before
        os.kill(job.pid, signal.SIGCONT)
        assert until(reader.sample) is not None


def test_memory_that_may_not_be_read_is_a_reason(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    with script(KNOWN, tmp_path) as job:
        pid = os.fork()
        if not pid:
            os.setuid(65534)
            try:
                StackReader(target_of(job.pid), lambda _: True)
            except Unreadable as why:
                os._exit(7 if "may not be read" in why.what and "sudo" in why.next_step else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_a_program_without_python_is_a_reason() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            with pytest.raises(Unreadable, match="No CPython"):
                StackReader(target_of(other.pid), lambda _: True)
        finally:
            other.kill()


def test_a_process_that_has_ended_is_a_reason() -> None:
    with running() as job:
        target = target_of(job.pid)
    with pytest.raises(Unreadable):
        StackReader(target, lambda _: True)


def test_python_314_is_read(tmp_path: Path) -> None:
    command = python314()
    with running(KNOWN, command) as job:
        reader = StackReader(target_of(job.pid), lambda file: file == "<string>")
        found, truth = taken(reader, 1000), share_of_helper(job)
        reader.close()
    assert reader.torn < 0.02 * len(found)
    shares = Counter(stack.leaf.function for stack in found)
    assert shares["helper"] / len(found) == pytest.approx(truth, abs=0.15)
    assert {stack.leaf.line for stack in found if stack.leaf.function == "sleep"} == {13}


# Makes functions up, runs each for a moment, and frees them: their numbers and lines are known.
MADE_UP = """
print("ready", flush=True)
number = 0
while True:
    number += 1
    first = number % 50
    source = "\\n" * first + f"def made_{first}():\\n    for _ in range({number % 300}): pass\\n"
    names = {}
    exec(compile(source + f"made_{first}()\\n", f"made_up_{first}", "exec"), names)
    del names
"""


def is_wrong(stack: Stack) -> bool:
    """Tell whether a sample of MADE_UP says what cannot be."""
    for place in (stack.leaf, stack.called, *stack.users):
        if place is None or not place.file.startswith("made_up_"):
            continue
        first = int(place.file.removeprefix("made_up_"))
        lines = {f"made_{first}": (1, 2), "<module>": (1, 3)}.get(place.function)
        begins = place.function == "<module>" and place.line == 1
        if lines is None or (place.line - first not in lines and not begins):
            return True
    return False


@pytest.mark.parametrize("seconds", [2, 30])
@every_python
def test_code_that_comes_and_goes_gets_no_wrong_names(
    python: str, seconds: int, tmp_path: Path
) -> None:
    with script(MADE_UP, tmp_path, [python]) as job:
        reader = StackReader(target_of(job.pid), lambda _: True)
        found: list[Stack] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found += taken(reader, 20, 0.0002)
        reader.close()
        assert job.poll() is None
    wrong = [stack for stack in found if is_wrong(stack)]
    assert len(found) > 100 * seconds
    assert len(wrong) <= 0.001 * len(found), wrong[:3]
    assert reader.torn < 0.1 * len(found)


T = TypeVar("T")


def until(attempt: Callable[[], T]) -> T:
    deadline = time.monotonic() + 20
    while not (found := attempt()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


MARKED = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("marks", {str(ROOT / "monitor/core/marks.py")!r})
marks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(marks)
print("ready", flush=True)
print(id(marks.shown), flush=True)
for name in ("validation", "checkpoint"):
    with marks.phase(name):
        print("in it", flush=True)
        sys.stdin.readline()
print("in steps", flush=True)
sys.stdin.readline()
marks.shown += b"longer"
print("longer", flush=True)
sys.stdin.readline()
"""


@every_python
def test_a_phase_that_the_job_marks_is_read_where_it_lies(python: str, tmp_path: Path) -> None:
    with script(MARKED, tmp_path, [python]) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        at = int(job.stdout.readline())
        reader = StackReader(target_of(job.pid), lambda file: file.endswith("train.py"))
        for phase in ("validation", "checkpoint", None, None):
            job.stdout.readline()
            assert reader.phase(at) == phase
            job.stdin.write("go on\n")
            job.stdin.flush()
        for nowhere in (0, 8, 1 << 60, (1 << 63) - 8):
            assert reader.phase(nowhere) is None
        reader.close()


# As libraries of trainers lay it out: the user's only line is ``fit``.
TRAINER = """
import time
class Trainer:
    def fit(self):
        while True:
            self.training_step()
            self.evaluate()
    def training_step(self):
        self.forward(0.003)
    def evaluate(self):
        self.forward(0.006)
        self.log()
    def log(self):
        self.forward(0.003)
    def forward(self, seconds):
        until = time.perf_counter() + seconds
        while time.perf_counter() < until: pass
"""


@every_python
def test_what_a_trainer_does_is_known_by_its_functions(python: str, tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "transformers"
    mine = tmp_path / "mine"
    mine.mkdir()
    library.mkdir(parents=True)
    (library / "trainer.py").write_text(TRAINER)
    source = (
        f"import sys; sys.path.insert(0, {str(library.parent)!r})\n"
        "from transformers.trainer import Trainer\n"
        "print('ready', flush=True)\nTrainer().fit()\n"
    )
    with script(source, mine, [python]) as job, reading(job, mine) as reader:
        found = [stack for stack in taken(reader, 300) if stack.users]
    # What is logged while validating is a part of that.
    validates = sum(stack.phase == "validation" for stack in found) / len(found)
    assert validates == pytest.approx(0.75, abs=0.15)
    assert {stack.phase for stack in found} == {None, "validation"}
    assert all(stack.users[-1].function == "<module>" for stack in found)

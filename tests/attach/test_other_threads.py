"""The threads of a job beside its main one, read from outside; and what they wait for."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.agents.pythons import every_python
from tests.attach.targets import target_of
from tests.attach.test_stack_reader import reading, script, taken
from whyidle.monitor.attach.stack_reader.reader import Stack, StackReader

# Two threads: one computes in stretches, one reads from a pipe that stays empty. Others come and
# go, so that their places are used again.
FEEDS = """
import os, threading, time
def compute():
    while True:
        sum(number * 7 for number in range(3000))
        time.sleep(0.001)
ours, theirs = os.pipe()
def read():
    os.read(ours, 1)
def passing():
    time.sleep(0.001)
for each in (compute, read):
    threading.Thread(target=each, daemon=True).start()
print("ready", flush=True)
while True:
    some = [threading.Thread(target=passing) for _ in range(3)]
    for each in some: each.start()
    for each in some: each.join()
"""
# More than are asked for.
MANY = """
import threading
gate = threading.Event()
for _ in range(20): threading.Thread(target=gate.wait, daemon=True).start()
print("ready", flush=True)
gate.wait()
"""


def seen(reader: StackReader, times: int) -> list[Stack]:
    found = []
    for _ in range(times):
        time.sleep(0.005)
        found += reader.sample_others(10)
    return found


@every_python
def test_each_thread_is_at_its_own_lines(python: str, tmp_path: Path) -> None:
    handles_before = len(list(Path("/proc/self/fd").iterdir()))
    with script(FEEDS, tmp_path, [python]) as job, reading(job, tmp_path) as reader:
        found = seen(reader, 300)
        # A thread that starts others is the main one all the same: these have its number at first.
        assert taken(reader, 20)
        handles = len(list(Path("/proc/self/fd").iterdir()))
    first = [stack.users[-1].function for stack in found if stack.users]
    assert {"compute", "read"} <= set(first) <= {"compute", "read", "passing"}
    assert min(first.count("compute"), first.count("read")) > 150
    # Those that have ended hold no file of ours open any more.
    assert handles - handles_before < 30
    reads = [stack for stack in found if stack.users and stack.users[0].function == "read"]
    if reads[0].waits is None:
        # This Python does not say which of the kernel's threads it is.
        return
    assert sum(bool(stack.waits) for stack in reads) > 0.9 * len(reads)
    assert {str(stack.file).partition(":")[0] for stack in reads if stack.waits} == {"pipe"}


def test_of_many_threads_some_are_read(tmp_path: Path) -> None:
    with script(MANY, tmp_path) as job, reading(job, tmp_path) as reader:
        assert len(list(reader.sample_others(10))) == 10


def test_threads_of_a_process_that_has_ended(tmp_path: Path) -> None:
    with script(MANY, tmp_path) as job, reading(job, tmp_path) as reader:
        assert list(reader.sample_others(10))
        job.kill()
        job.wait()
        assert list(reader.sample_others(10)) == []


def test_the_stack_of_a_target_is_opened_once() -> None:
    # The reader of this very process: its main thread, and no other that runs Python.
    reader = StackReader(target_of(os.getpid()), lambda file: file == __file__)
    try:
        assert all(stack.users == () for stack in reader.sample_others(10))
    finally:
        reader.close()

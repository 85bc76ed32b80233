"""The thread that samples stacks from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.attach.targets import Job, running
from tests.attach.test_other_threads import FEEDS
from tests.attach.test_stack_reader import KNOWN
from tests.link.conftest import FS, key_of
from whyidle.agents.wire import MOST_PLACES
from whyidle.monitor.attach.stack_reader.code_objects import Place
from whyidle.monitor.attach.stack_reader.reader import Stack, StackReader
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.stacks import thread as stack_thread
from whyidle.monitor.recording.stacks.counts import StackCounts
from whyidle.monitor.recording.stacks.thread import StackThread

T = TypeVar("T")


@pytest.fixture
def thread() -> Iterator[StackThread]:
    found = StackThread(FS)
    yield found
    found.close()


@pytest.fixture
def job() -> Iterator[Job]:
    with running(KNOWN) as found:
        yield found


def until(attempt: Callable[[], T]) -> T:
    deadline = time.monotonic() + 20
    while not (found := attempt()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_what_is_watched_is_sampled_and_nothing_else(thread: StackThread, job: Job) -> None:
    key = key_of(job.pid)
    thread.watch({key: 200.0})
    stacks, _ = until(thread.take)[key]
    assert stacks.samples == sum(count.count for count in stacks.counts)
    assert stacks.span_ns > 0
    assert {count.leaf.function for count in stacks.counts if count.leaf} <= {
        *("helper", "sleep", "train", "<module>"),
    }
    thread.watch({})
    until(lambda: not thread._sampled)
    thread.take()
    assert thread.take() == {}


def test_of_a_job_that_ends_the_last_samples_are_kept(thread: StackThread, job: Job) -> None:
    key = key_of(job.pid)
    thread.watch({key: 200.0})
    until(lambda: key in thread._sampled and thread._sampled[key].samples)
    job.kill()
    until(lambda: key not in thread._sampled)
    stacks, _ = thread.take()[key]
    assert stacks.samples
    # Nothing to tell: that it has ended is seen elsewhere.
    assert not thread.refusals() or "has ended" in thread.refusals()[key].what


def test_a_stopped_job_is_waited_for(thread: StackThread, job: Job) -> None:
    key = key_of(job.pid)
    thread.watch({key: 200.0})
    until(thread.take)
    os.kill(job.pid, signal.SIGSTOP)
    until(lambda: (stat := FS.stat(job.pid)) and stat.is_stopped)
    time.sleep(0.05)
    thread.take()
    time.sleep(0.2)
    assert thread.take() == {}
    os.kill(job.pid, signal.SIGCONT)
    assert until(thread.take)


def test_what_cannot_be_read_is_a_reason_and_tried_again(
    thread: StackThread, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_thread, "TRY_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(stack_thread, "_IDLE_SECONDS", 0.01)
    key = key_of(job.pid)
    gone = ProcessKey(job.pid, key.start_ticks + 1)
    thread.watch({gone: 20.0})
    assert "has ended" in until(thread.refusals)[gone].what
    thread.watch({key: 200.0})
    assert until(thread.take)
    until(lambda: not thread.refusals())


def test_a_defect_ends_no_recording(
    thread: StackThread, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StackReader, "sample", lambda _: 1 / 0)
    key = key_of(job.pid)
    thread.watch({key: 200.0})
    assert "ZeroDivisionError" in until(thread.refusals)[key].what


def test_samples_that_cost_too_much_are_fewer(
    thread: StackThread, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def costly(_: StackReader) -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    monkeypatch.setattr(StackReader, "sample", costly)
    monkeypatch.setattr(stack_thread, "_FOLLOWS", 1.0)
    key = key_of(job.pid)
    thread.watch({key: 20.0})
    due = until(lambda: key in thread._sampled and thread._seconds and thread._sampled[key].due)
    # 20 ms of work 20 times a second is 40% of a core.
    assert due - time.monotonic() > 0.02 / stack_thread.BUDGET * 0.4


class Reader:
    """Counts as a reader does."""

    taken = torn = 0


def test_many_stacks_are_counted_and_only_some_are_named() -> None:
    counts = StackCounts(Reader(), 20.0)  # type: ignore[arg-type]
    for line in range(2 * MOST_PLACES):
        place = Place("/job/a.py", line, "f")
        counts.add(Stack(place, None, (place,), None if line % 2 else True))
    stacks, torn = counts.record(5)
    assert (stacks.samples, len(stacks.counts), torn) == (2 * MOST_PLACES, MOST_PLACES, 0)
    assert [(c.known, c.waited) for c in stacks.counts[:2]] == [(1, 1), (0, 0)]
    assert counts.record(6)[0].samples == 0


def test_a_reader_that_understands_nothing_is_not_used() -> None:
    reader = Reader()
    counts = StackCounts(reader, 20.0)  # type: ignore[arg-type]
    reader.taken, reader.torn = 10, 20
    assert counts.makes_sense
    reader.taken, reader.torn = 100, 150
    assert not counts.makes_sense


def test_the_other_threads_of_the_first_process_and_of_who_waits_are_sampled_too(
    thread: StackThread,
) -> None:
    with running(FEEDS) as job, running(FEEDS) as other:
        first, second = key_of(job.pid), key_of(other.pid)
        thread.watch({first: 50.0, second: 50.0})
        seen: set[str] = set()
        of_workers: set[str] = set()
        deadline = time.monotonic() + 20
        while not {"compute", "read"} <= seen & of_workers:
            assert time.monotonic() < deadline
            time.sleep(0.2)
            found = thread.take_threads()
            for key, stacks in found.items():
                functions = {count.leaf.function for count in stacks.counts if count.leaf}
                of_workers |= functions if key == second else set()
                seen |= functions if key == first else set()
                assert set(stacks.reads) <= {"pipe"}
        # They are no samples of the main thread.
        mains = {c.leaf.function for c in thread.take()[first][0].counts if c.leaf}
        assert not mains & {"compute", "read"}
        thread.watch({})
        until(lambda: not thread._sampled)
        assert not thread._threads

"""Stack samples: whose line it was, what that called, and whether the thread waited."""

from __future__ import annotations

import functools
import os
import queue
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from whyidle.agents.hooks import Hooks
from whyidle.agents.stacks import StackSampler
from whyidle.agents.trainers import phase_of

SAMPLES = 60
# Of a row without a phase: how often, where, the user's lines, what they called, and two states.
STATES = 6


def sampled(act: Callable[[], object], samples: int = SAMPLES) -> list[list[object]]:
    """Return the rows of some samples of this thread, taken while it acts again and again."""
    sampler, hooks = StackSampler(threading.get_ident(), 0), Hooks()
    sampler.open(hooks)
    done = threading.Event()

    def other() -> None:
        time.sleep(0.02)
        for _ in range(samples):
            sampler.sample(0)
            time.sleep(0.005)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    while not done.is_set():
        act()
    thread.join()
    hooks.undo()
    record = sampler.record(1)
    assert record is not None
    assert record[3] == samples
    return record[4]  # type: ignore[no-any-return]


def waited(rows: list[list[object]]) -> float:
    known, slept = (sum(row[i] for row in rows) for i in (4, 5))  # type: ignore[misc]
    assert known == SAMPLES
    return slept / known


def work() -> None:
    for number in range(20_000):
        number * number


def hold_the_lock() -> None:
    # One call of C at a time, none of which lets go of Python's lock.
    sorted(range(100_000, 0, -1), key=str)


def wait() -> None:
    with suppress(queue.Empty):
        queue.Queue().get(timeout=0.05)


def test_a_thread_that_works_does_not_wait() -> None:
    rows = sampled(work)
    assert waited(rows) < 0.2
    most = max(rows, key=lambda row: row[0])  # type: ignore[arg-type,return-value]
    leaf, frames, called = most[1], most[2], most[3]
    assert leaf[2] == "work"  # type: ignore[index]
    assert frames[0] == leaf  # type: ignore[index]
    assert called is None


def test_a_thread_that_holds_or_wants_the_lock_does_not_wait() -> None:
    assert waited(sampled(hold_the_lock)) < 0.2


@pytest.mark.parametrize("act", [wait, lambda: time.sleep(0.05)])
def test_a_thread_that_sleeps_waits(act: Callable[[], object]) -> None:
    assert waited(sampled(act)) > 0.8


def test_what_the_users_line_called_is_known_and_where_that_is_now() -> None:
    rows = [row for row in sampled(wait) if row[3] is not None]
    most = max(rows, key=lambda row: row[0])  # type: ignore[arg-type,return-value]
    leaf, frames, called = most[1], most[2], most[3]
    assert frames[0][2] == "wait"  # type: ignore[index]
    assert called[2] == "get"  # type: ignore[index]
    assert called[0].endswith("/queue.py")  # type: ignore[index]
    assert leaf[0].endswith("/threading.py")  # type: ignore[index]


def test_a_library_that_waits_by_the_standard_one_is_the_innermost_line() -> None:
    source = "def fetch(queue):\n    try: queue.get(timeout=0.05)\n    except Exception: pass\n"
    names: dict[str, Callable[[object], None]] = {}
    exec(compile(source, "/env/lib/python3.11/site-packages/loader/reader.py", "exec"), names)
    rows = sampled(lambda: names["fetch"](queue.Queue()))
    most = max(rows, key=lambda row: row[0])  # type: ignore[arg-type,return-value]
    assert most[1][2] == most[3][2] == "fetch"  # type: ignore[index]


def test_what_is_in_a_call_of_ours_is_in_the_line_that_made_it() -> None:
    names: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(compile("def read(act): act()\n", "<_whyidle_agent.torch.read_hooks>", "exec"), names)
    wait_in_c = lambda: names["read"](lambda: time.sleep(0.05))  # noqa: E731
    assert all("<_whyidle" not in row[1][0] for row in sampled(wait_in_c))  # type: ignore[index]
    asleep = lambda: names["read"](functools.partial(time.sleep, 0.05))  # type: ignore[arg-type]  # noqa: E731
    most = max(sampled(asleep), key=lambda row: row[0])  # type: ignore[arg-type,return-value]
    assert most[1] == most[2][0]  # type: ignore[index]


def test_without_a_free_descriptor_it_is_not_known() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    rows = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        rows = sampled(work, 5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sum(row[0] for row in rows) == 5  # type: ignore[misc]
    assert all(row[4:] == [0, 0] for row in rows)


def test_a_number_that_the_job_took_is_not_read_any_more() -> None:
    sampler, hooks = StackSampler(threading.get_ident(), 0), Hooks()
    sampler.open(hooks)
    state = sampler._state
    assert state is not None
    with Path("/dev/null").open() as other:
        os.dup2(other.fileno(), state.number)
        sampler.record(0)
        sampler.sample(0)
        hooks.undo()
        # The job's own file stays open.
        os.fstat(state.number)
        os.close(state.number)
    assert sampler.record(1)[4][0][4:] == [0, 0]  # type: ignore[index]


def test_a_thread_that_has_ended_has_no_state() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    ident = thread.ident
    thread.join()
    hooks = Hooks()
    sampler = StackSampler(ident or 0, 0)
    sampler.open(hooks)
    sampler.sample(0)
    assert sampler.record(1) is None


def test_what_a_trainer_does_is_known_by_its_functions() -> None:
    made: dict[str, Callable[[], None]] = {"work": work}
    file = "/venv/lib/site-packages/transformers/trainer.py"
    exec(compile("def evaluate():\n    log()\ndef log():\n    work()\n", file, "exec"), made)
    inside = [row for row in sampled(made["evaluate"]) if len(row) > STATES]
    assert sum(row[0] for row in inside) > 0.8 * SAMPLES  # type: ignore[misc]
    # What is logged while validating is a part of that.
    assert {row[-1] for row in inside} == {"validation"}
    assert {phase_of(file, name) for name in ("train", "training_step", "fit")} == {None}
    assert phase_of("/home/me/evaluation.py", "evaluate") is None

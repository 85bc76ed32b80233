"""Steps by the turns of a job's own loop: programs in many styles, on every Python."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.agents.pythons import every_python
from tests.attach.test_stack_reader import Job, reading, script
from whyidle.agents import wire
from whyidle.monitor.attach.stack_reader.code_objects import Place
from whyidle.monitor.attach.stack_reader.loop_counters import Count, Loop
from whyidle.monitor.attach.stack_reader.reader import StackReader
from whyidle.monitor.recording.stacks.turns import (
    BATCHES,
    CALLBACKS,
    REACH_NS,
    SETTLED_NS,
    Told,
    Turns,
)
from whyidle.monitor.recording.stats.step_times import SECOND
from whyidle.monitor.runs.training import LOOP

COUNTED = """
import signal, time
done = [0]
signal.signal(signal.SIGUSR1, lambda *_: print(done[0], flush=True))
def step():
    # What a step repeats is no step.
    for part in range(4):
        time.sleep(0.001)
    done[0] += 1
"""
STYLES = {
    "a range in a function": """
def main():
    for _ in range(10**9):
        step()
print("ready", flush=True)
main()
""",
    "batches of a generator, numbered, in the module": """
def batches():
    while True:
        for begin in range(0, 64000, 16):
            yield begin, begin + 16
print("ready", flush=True)
for number, (begin, end) in enumerate(batches()):
    step()
""",
    "epochs over a list, in a function of their own": """
def one_epoch(batches):
    for batch in batches:
        step()
def fit():
    for epoch in range(1000):
        one_epoch([None] * 400)
print("ready", flush=True)
fit()
""",
    "a while loop over its own number": """
class Trainer:
    def fit(self):
        number, seen = 0, 0
        while number < 10**9:
            step()
            number += 1
            seen += 512
print("ready", flush=True)
Trainer().fit()
""",
    "numbered by itertools, in the module": """
import itertools
class Kept:
    pass
kept = Kept()
print("ready", flush=True)
for kept.number in itertools.count(1):
    step()
""",
    "so many of what never ends": """
import itertools
def fit(epochs):
    for epoch in range(epochs):
        for _ in itertools.islice(iter(int, 1), 400):
            step()
print("ready", flush=True)
fit(1000)
""",
    "an array's rows": """
class Rows:
    def __len__(self):
        return 400
    def __getitem__(self, row):
        if row == 400:
            raise IndexError
        return row
def fit():
    for epoch in range(1000):
        for row in Rows():
            step()
print("ready", flush=True)
fit()
""",
    "two things at once": """
def fit(xs, ys):
    for epoch in range(1000):
        for x, y in zip(iter(xs), iter(ys)):
            step()
print("ready", flush=True)
fit([0] * 50, (0,) * 50)
""",
}


def follow(reader: StackReader, turns: Turns, seconds: float, faster: float = 8.0) -> None:
    """Look for a while; to it the time goes ``faster`` than ours."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        turns.look(reader.loops(), round(faster * time.monotonic_ns()))
        time.sleep(0.013)


def done(job: Job) -> int:
    assert job.stdout is not None
    os.kill(job.pid, signal.SIGUSR1)
    return int(job.stdout.readline())


@every_python
@pytest.mark.parametrize("style", STYLES)
def test_steps_are_those_that_the_job_counts_itself(
    style: str, python: str, tmp_path: Path
) -> None:
    with script(COUNTED + STYLES[style], tmp_path, [python]) as job, reading(job, tmp_path) as it:
        turns, before, told, deadline = Turns(), -1, 0, time.monotonic() + 10
        while turns._chosen is None and time.monotonic() < deadline:
            follow(it, turns, 0.2)
            turns.take(round(8 * time.monotonic_ns()))
            before = done(job)
        follow(it, turns, 1.5)
        steps, after = turns.take(round(8 * time.monotonic_ns())), done(job)
    assert steps is not None
    assert steps.source == LOOP
    told = steps.count
    # A step or two end while it is asked.
    assert told == pytest.approx(after - before, abs=4 + 0.05 * (after - before))


PLACE = Place("train.py", 7, "fit")
STEP, EPOCH, PART = (
    Loop(1, 5, (3,), is_iterator=True),
    Loop(0, 4, (1,), is_iterator=True),
    Loop(2, 6, (0,), is_iterator=True),
)


def seen(turns: Turns, at: float, values: Mapping[Loop, float]) -> None:
    counts = {loop: Count(int(value), PLACE) for loop, value in values.items()}
    turns.look(counts, round(at * SECOND))


def test_the_loop_that_agrees_with_a_trace_counts() -> None:
    turns = Turns()
    for tick in range(200):
        at = 1 + tick / 10
        seen(turns, at, {EPOCH: at, STEP: 20 * at, PART: 80 * at})
    now = round(21 * SECOND)
    assert turns.take(now) is None
    assert turns._chosen == EPOCH
    turns.tell(Told(0.06))
    turns.take(now)
    assert turns._chosen == STEP
    # A trace of which no loop knows anything changes nothing.
    turns.tell(Told(5e-6))
    turns.take(now)
    assert turns._chosen == STEP


def test_epochs_that_turn_late_do_not_take_the_place_of_steps() -> None:
    turns = Turns()
    for tick in range(900):
        at = 1 + tick / 10
        seen(turns, at, {EPOCH: at // 10, STEP: (10 * at) % 100})
        turns.take(round(at * SECOND))
    assert turns._chosen == STEP


def test_turns_across_a_new_beginning_are_counted() -> None:
    turns, told = Turns(), 0
    for tick in range(600):
        at = 1 + tick / 10
        seen(turns, at, {STEP: round(10 * at) % 50})
        steps = turns.take(round(at * SECOND))
        told += steps.count if steps else 0
    # The end of a list is not seen, and what it holds is learned with time.
    assert told == pytest.approx(10 * (60 - SETTLED_NS / SECOND), rel=0.05)


def test_what_begins_anew_all_the_time_and_what_grows_by_leaps_are_no_steps() -> None:
    turns = Turns()
    tokens = Loop(0, 4, (2,), is_iterator=False)
    for tick in range(200):
        at = 1 + tick / 10
        seen(turns, at, {PART: tick % 4, tokens: 512 * tick})
        assert turns.take(round(at * SECOND)) is None


def test_a_loop_that_is_gone_is_forgotten() -> None:
    turns = Turns()
    for tick in range(100):
        seen(turns, 1 + tick / 10, {STEP: tick})
        turns.take(round((1 + tick / 10) * SECOND))
    assert turns._chosen == STEP
    seen(turns, 12 + REACH_NS / SECOND, {})
    assert turns.take(round(40 * SECOND)) is None
    assert turns._chosen is None


BATCH = Loop(0, 4, (2,), is_iterator=True)
# It lies in a variable and lasts: it begins anew with each turn of no loop.
STORED = Loop(0, 4, (0,), is_iterator=True)


@pytest.mark.parametrize(
    ("loops", "rate"),
    [
        # One function holds both loops; or the inner one stands in a function that it calls.
        ({EPOCH: lambda at: 7 * at, BATCH: lambda at: (7 * at % 1) * 48}, 7 * 48),
        ({EPOCH: lambda at: 2 * at, STEP: lambda at: (2 * at % 1) * 170}, 2 * 170),
        # Epochs that are slow.
        ({EPOCH: lambda at: 0.7 * at, BATCH: lambda at: (0.7 * at % 1) * 400}, 0.7 * 400),
    ],
)
def test_a_loop_that_begins_anew_all_the_time_is_counted_where_a_trace_agrees(
    loops: Mapping[Loop, Callable[[float], float]], rate: float
) -> None:
    turns, told, units = Turns(), 0, set()
    inner = max(loops)
    clock = random.Random(3)
    at = 1.0
    while at < 41:
        at += clock.uniform(0.1, 0.3)
        seen(turns, at, {loop: place(at) for loop, place in loops.items()})
        # What repeats takes less while nobody watches.
        turns.tell(Told(1.3 / rate if at > 11 else None))
        steps = turns.take(round(at * SECOND))
        if steps and at > 21:
            told += steps.count
            units.add(steps.unit)
    assert turns._chosen == inner
    assert told == pytest.approx(20 * rate, rel=0.04)
    assert len(units) == 1
    # The trace is of no use any more after some time.
    turns.tell(Told(None))
    seen(turns, 41.2, {loop: place(41.2) for loop, place in loops.items()})
    later = turns.take(round(41.2 * SECOND))
    assert later is not None
    assert later.unit in units


@pytest.mark.parametrize("stored", [lambda at: (20 * at) % 900, lambda at: 20 * at])
def test_what_lasts_is_in_no_loop(stored: Callable[[float], float]) -> None:
    """A healthy twin: an iterator in a variable, which each step takes a batch from."""
    turns, told = Turns(), 0
    for tick in range(400):
        at = 1 + tick / 10
        seen(turns, at, {STORED: stored(at), BATCH: 20 * at})
        steps = turns.take(round(at * SECOND))
        told += steps.count if steps and at > 11 else 0
    assert turns._chosen in {BATCH, STORED}
    assert told == pytest.approx(20 * 30, rel=0.05)


def test_another_loop_is_another_unit() -> None:
    turns, units = Turns(), []
    for tick in range(300):
        at = 1 + tick / 10
        seen(turns, at, {EPOCH: at, STEP: 20 * at})
        turns.tell(Told(0.05 if at > 15 else None))
        steps = turns.take(round(at * SECOND))
        units += [steps.unit] if steps else []
    assert sorted(set(units)) == [1, 2]
    assert units == sorted(units)


NUMBER = Loop(1, 5, (4,), is_iterator=False)


@pytest.mark.parametrize(
    ("loops", "batches", "callbacks", "chosen", "rate"),
    [
        # Epochs over a loader whose iterator cannot be read.
        ({EPOCH: 2}, 40, None, BATCHES, 40),
        # Nothing that can be read but the batches, and nothing but callbacks of a whole program.
        ({}, 40, None, BATCHES, 40),
        ({}, None, 25, CALLBACKS, 25),
        # Batches as a loop turns: it counts. As where a step asks for four of them.
        ({STEP: 20}, 20, None, STEP, 20),
        ({EPOCH: 10, STEP: 40}, 40, 40, EPOCH, 10),
        # Epochs over a loop that turns as batches come, and a number that counts these.
        ({EPOCH: 2, STEP: 40}, 40, None, STEP, 40),
        ({EPOCH: 2, NUMBER: 40}, 40, None, BATCHES, 40),
        # A batch for several steps, and a loop in which a callback logs.
        ({STEP: 50}, 5, None, STEP, 50),
        ({STEP: 20}, None, 2, STEP, 20),
    ],
)
def test_what_an_agent_counts_stands_for_a_loop_that_cannot_be_read(
    loops: dict[Loop, int],
    batches: int | None,
    callbacks: int | None,
    chosen: Loop,
    rate: int,
) -> None:
    turns, told = Turns(), 0
    totals = {wire.MOST_BATCHES: batches, wire.CALLBACKS: callbacks}
    for tick in range(300):
        at = 1 + tick / 10
        if loops:
            seen(turns, at, {loop: number * at for loop, number in loops.items()})
        if tick % 10 == 0:
            known = {name: round(n * at) for name, n in totals.items() if n is not None}
            turns.tell(Told(None, round(at * SECOND), known))
            steps = turns.take(round((at + 0.3) * SECOND))
            told += steps.count if steps else 0
    assert turns._chosen == chosen
    assert told == pytest.approx(rate * (29 - SETTLED_NS / SECOND), rel=0.06)


@pytest.mark.parametrize(
    ("name", "counted"), [(wire.MOST_BATCHES, BATCHES), (wire.CALLBACKS, CALLBACKS)]
)
@pytest.mark.parametrize("pauses", [False, True])
def test_what_stands_still_gives_way_to_a_loop_and_comes_back_as_it_was(
    name: str, counted: Loop, *, pauses: bool
) -> None:
    turns, units = Turns(), set()
    for tick in range(900):
        at = 1 + tick / 10
        # After half a minute the program trains in a loop of its own, or pauses for as long.
        total = round(20 * (at if at < 30 else 30 if at < 60 or not pauses else at - 30))
        if at >= 30 and not pauses:
            seen(turns, at, {STEP: 7 * at})
        if tick % 10 == 0:
            turns.tell(Told(None, round(at * SECOND), {name: total}))
            steps = turns.take(round(at * SECOND))
            units |= {steps.unit} if steps else set()
    assert turns._chosen == (counted if pauses else STEP)
    assert len(units) == 1 + (not pauses)


def test_callbacks_give_way_at_once_to_a_loop_that_is_slow_to_turn() -> None:
    turns = Turns()
    for tick in range(300):
        at = 1 + tick / 10
        seen(turns, at, {EPOCH: at / 3})
        turns.tell(Told(None, round(at * SECOND), {wire.CALLBACKS: round(9 * at)}))
        turns.take(round(at * SECOND))
    assert turns._chosen == EPOCH

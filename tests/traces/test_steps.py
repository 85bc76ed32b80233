"""Steps are those the job marks; without marks they are found by what repeats, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from tests.traces.agreeing import agree, well_formed
from tests.traces.looking import launched, repeated, steps_of
from tests.traces.repeating import Job
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Format, Trace
from whyidle.monitor.traces.steps import recurring

KERNELS = list(range(40)) + [7, 8, 9] * 5
FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def a_job(count: int, step: Callable[[Job, int], None]) -> Job:
    job = Job()
    for number in range(count):
        begin = job.now
        step(job, number)
        job.mark(f"ProfilerStep#{number}", begin)
    return job


def train(job: Job, number: int) -> None:
    job.wait(500)
    job.launch(KERNELS)


def fetch_and_train(job: Job, number: int) -> None:
    job.call(FETCH, Cause.INPUT, 300)
    job.launch(KERNELS)


# --- markers


def test_markers_are_the_truth() -> None:
    found = steps_of(a_job(5, fetch_and_train).trace(hidden=False))
    assert (found.source, len(found), found.how) == ("markers", 5, "ProfilerStep markers")
    well_formed(found)


def test_one_marker_is_one_step() -> None:
    found = steps_of(a_job(1, train).trace(hidden=False))
    assert (found.source, len(found)) == ("markers", 1)


def test_markers_of_two_processes_are_not_added_up() -> None:
    job = Job()
    for number in range(6):
        job.marks.append((number * 100, number * 100 + 99, job.name(f"ProfilerStep#{number}"), 0))
        # The other process is a little later, and a little slower.
        begin = 30 + number * 103
        job.marks.append((begin, begin + 103, job.name(f"ProfilerStep#{number}"), 0))
    found = steps_of(job.trace(hidden=False))
    well_formed(found)
    assert len(found) == 6
    assert set((found.end - found.start).tolist()) in ({99}, {103})


def two_processes(*, calls: int) -> Trace:
    """One with short steps, and another whose longer ones fit between them."""
    job = Job()
    for number in range(5):
        job.marks.append((number * 100, number * 100 + 30, job.name(f"ProfilerStep#{number}"), 0))
        job.marks.append((number * 100 + 35, number * 100 + 90, job.names["ProfilerStep#0"], 1))
    for job.thread, kernels in ((0, calls), (1, 3)):
        job.launch(range(kernels))
    return job.trace(threads=(1, 2), hidden=False)


def test_markers_of_two_processes_are_not_chained() -> None:
    """Those of the process that launches most count, else those that cover most time."""
    for calls, length in ((9, 30), (3, 55)):
        found = steps_of(two_processes(calls=calls))
        well_formed(found)
        assert (found.end - found.start).tolist() == [length] * 5


def test_markers_inside_a_marker_are_not_counted() -> None:
    job = Job()
    for number in range(4):
        job.marks.append((number * 100, number * 100 + 100, job.name(f"train {number}"), 0))
        for micro in range(3):
            begin = number * 100 + micro * 30
            job.marks.append((begin, begin + 20, job.name("micro"), 0))
    found = steps_of(job.trace(hidden=False))
    assert (len(found), found.how) == (4, "train markers")


def test_a_marker_around_all_is_no_step() -> None:
    job = Job()
    job.marks.append((0, 1000, job.name("epoch"), 0))
    for number in range(4):
        job.marks.append((number * 100, number * 100 + 90, job.name(f"train {number}"), 0))
    assert len(steps_of(job.trace(hidden=False))) == 4


# --- repetition


@given(st.integers(2, 12))
@examples(20)
def test_every_way_agrees_with_the_hidden_markers(count: int) -> None:
    for step in (train, fetch_and_train):
        job = a_job(count, step)
        found, marked = steps_of(job.trace()), steps_of(job.trace(hidden=False))
        well_formed(found)
        agree(found, marked)


def test_each_way_says_how() -> None:
    assert steps_of(a_job(4, fetch_and_train).trace()).how == "every DataLoader fetch"
    assert steps_of(a_job(4, train).trace()).how == "a sequence of 55 kernels that repeats"


def test_a_fetch_that_finds_nothing_is_no_step() -> None:
    job = a_job(4, fetch_and_train)
    job.call(FETCH, Cause.INPUT)
    job.call("torch/utils/data/dataloader.py(701): __next__", Cause.INPUT)
    assert len(steps_of(job.trace())) == 4


def test_two_loaders_are_one_step() -> None:
    def both(job: Job, number: int) -> None:
        job.call(FETCH, Cause.INPUT)
        fetch_and_train(job, number)

    assert len(steps_of(a_job(5, both).trace())) == 5


def test_fetches_of_another_process_are_none_of_ours() -> None:
    def with_a_worker(job: Job, number: int) -> None:
        train(job, number)
        job.thread = 1
        for _ in range(3):
            job.call(FETCH, Cause.INPUT)
        job.thread = 0

    assert steps_of(a_job(5, with_a_worker).trace(threads=(1, 2))).how.endswith(
        "kernels that repeats"
    )


def test_a_step_that_was_cut_is_not_whole() -> None:
    job = Job()
    job.launch(KERNELS[20:])
    for number in range(4):
        train(job, number)
    job.wait(500)
    job.launch(KERNELS[:15])
    found = steps_of(job.trace())
    assert len(found) == 4
    assert set((found.end - found.start)[1:].tolist()) == {500 + 13 * len(KERNELS)}


def test_the_optimizer_knows_what_the_kernels_do_not() -> None:
    """Ten equal layers and little else: without the optimizer each one would be a step."""

    def layers(job: Job, number: int) -> None:
        for _ in range(10 + number % 3):
            job.launch(range(40))
        job.call("Optimizer.step#SGD.step", Cause.OPTIMIZER)
        job.launch([90, 91])

    found = steps_of(a_job(6, layers).trace())
    assert found.how == "every Optimizer.step"
    assert len(found) >= 5


def test_optimizers_that_take_turns() -> None:
    def adversaries(job: Job, number: int) -> None:
        job.launch(range(30 + number % 2))
        job.call("Optimizer.step#Adam.step", Cause.OPTIMIZER)
        job.launch(range(20))
        job.call("Optimizer.step#SGD.step", Cause.OPTIMIZER)

    trace = a_job(6, adversaries).trace()
    found = recurring.BusiestProcess(trace, launched(trace)).optimizer_steps()
    assert found
    assert len(found[0]) in (5, 6)


def test_the_layers_of_one_run_are_no_steps() -> None:
    job = Job()
    job.launch(range(60, 80))
    for _ in range(24):
        job.launch(range(40))
    job.launch(range(80, 90))
    assert steps_of(job.trace()).source == "none"


@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
@examples(30)
def test_kernels_in_no_order_are_no_steps(seed: int, alphabet: int) -> None:
    job = Job()
    job.launch(np.random.default_rng(seed).integers(0, alphabet, 400).tolist())
    found = steps_of(job.trace())
    assert (found.source, found.median) == ("none", None)
    well_formed(found)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["kineto", "xplane"]))
@examples(600)
def test_whatever_a_file_holds_steps_are_well_formed(seed: int, kind: Format) -> None:
    chance = np.random.default_rng(seed)
    texts = [FETCH, "Optimizer.step#SGD.step", "PjitFunction(f)", "PjitFunction(g)", "aten::mul"]
    kinds = [Cause.INPUT, Cause.OPTIMIZER, Cause.OP, Cause.AROUND, Cause.SYNC]
    job = Job(format=kind)
    for _ in range(int(chance.integers(0, 60))):
        job.thread = int(chance.integers(0, 3))
        job.call(str(chance.choice(texts)), kinds[chance.integers(5)], int(chance.integers(0, 40)))
        job.launch(chance.integers(0, 4, chance.integers(0, 4)).tolist(), int(chance.integers(9)))
        job.now -= int(chance.integers(0, 60))
        job.mark("ProfilerStep#1", job.now - int(chance.integers(-5, 100)))
    trace = job.trace(threads=(1, 1, 2), hidden=bool(chance.integers(2)))
    trace.calls = trace.calls.take(chance.random(len(trace.calls)) < chance.random())
    well_formed(steps_of(trace))
    well_formed(repeated(trace))


def test_an_empty_trace_has_no_steps() -> None:
    for kind in ("kineto", "xplane", "nsys"):
        found = steps_of(Trace(kind, 1))  # type: ignore[arg-type]
        assert (found.source, len(found), found.median) == ("none", 0, None)


# --- JAX


def a_jax_job(count: int, *, queue: int = 0, ticks: int = 5) -> Job:
    job = Job(format="xplane", queue=queue)
    for _ in range(count):
        job.call("PjitFunction(train_step)", Cause.OP)
        job.launch(range(8), ticks)
        job.wait(200)
    return job


def test_a_jitted_call_is_a_step() -> None:
    found = steps_of(a_jax_job(20).trace())
    assert (len(found), found.how) == (20, "PjitFunction(train_step) calls")


def test_calls_of_one_step_go_together() -> None:
    job = Job(format="xplane")
    for _ in range(6):
        for _ in range(32):
            job.call("PjitFunction(sample)", Cause.OP)
            job.launch(["one"])
        job.call("PjitFunction(update)", Cause.OP)
        job.launch(["two"])
        job.wait(100)
    found = steps_of(job.trace())
    assert (len(found), found.how) == (6, "a sequence of 33 PjitFunction calls")


def test_steps_that_the_device_runs_later_are_told_as_it_runs_them() -> None:
    """The host of a JAX job may be done before the device has begun."""
    found = steps_of(a_jax_job(10, queue=50_000, ticks=1000).trace())
    well_formed(found)
    assert len(found) == 10
    assert found.median == 8 * 1000


def test_the_search_is_fast() -> None:
    job = Job()
    for _ in range(1500):
        job.launch(KERNELS)
    trace = job.trace()
    assert len(trace.host) + len(trace.devices[0].ops) > 160_000
    began = time.process_time()
    assert len(steps_of(trace)) == 1500
    # Measured: 25 ms for 165,000 events.
    assert time.process_time() - began < 0.5

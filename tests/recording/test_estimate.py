"""Where the time goes: the parts add up, and nothing is in them that was not measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.render.snapshots import inside, snapshot
from tests.render.trace_answers import budget
from tests.render.training import trace
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import NO_JAX, Reading
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.estimate import (
    IT_CHANGED,
    IT_LACKS_WORK,
    NO_GPU_IN_IT,
    NO_WORK,
    NOWHERE,
    ON_CPU,
    ON_GPU,
    TOO_OLD,
    WHOLE,
    Device,
    Running,
    running,
)
from whyidle.monitor.traces.window import NOT_RECORDED
from whyidle.monitor.tracing.trace_summary import TraceSummary

GPU = Reading({m.GPU_UTILISATION: 0.6, m.GPU_SM_ACTIVITY: 0.55})
WAITS = (m.JOB_GC_PAUSE, m.JOB_COMPILE, m.JOB_SYNC_WAIT, m.JOB_LOADER_WAIT)
ANYTHING = st.none() | st.floats()
SHARES = st.none() | st.floats(0, 1)


def job(**known: float) -> Reading:
    names = {
        "gc": m.JOB_GC_PAUSE,
        "compile": m.JOB_COMPILE,
        "sync": m.JOB_SYNC_WAIT,
        "input": m.JOB_LOADER_WAIT,
    }
    values = {names[name]: value for name, value in known.items()}
    return Reading(values, dict.fromkeys(set(WAITS) - values.keys(), "no such hook"))


def percent(found: Running) -> dict[str, int]:
    whole = sum(found.slices.values())
    return {s.value: round(100 * ns / whole) for s, ns in found.slices.items() if ns}


@given(
    st.lists(ANYTHING, min_size=4, max_size=4),
    st.lists(st.tuples(ANYTHING, ANYTHING), max_size=3),
    st.sampled_from(("gpu", "cpu", None)),
)
def test_the_parts_add_up_whatever_a_job_reports(
    waits: list[float | None],
    gpus: list[tuple[float | None, float | None]],
    device: Device | None,
) -> None:
    job_reading = Reading({x: v for x, v in zip(WAITS, waits, strict=True) if v is not None})
    kinds: tuple[Metric, Metric] = (m.GPU_UTILISATION, m.GPU_SM_ACTIVITY)
    readings = [
        Reading({x: v for x, v in zip(kinds, pair, strict=True) if v is not None}) for pair in gpus
    ]
    found = running(job_reading, readings, device)
    assert sum(found.slices.values()) in {0, WHOLE}
    assert all(ns >= 0 for ns in found.slices.values())
    assert not found.slices or list(found.slices) == list(Slice)


@given(st.lists(SHARES, min_size=4, max_size=4), st.floats(0, 1))
def test_no_part_is_larger_than_what_was_measured_for_it(
    waits: list[float | None], used: float
) -> None:
    job_reading = Reading({x: v for x, v in zip(WAITS, waits, strict=True) if v is not None})
    found = running(job_reading, [Reading({m.GPU_UTILISATION: used})], "gpu")
    parts = (Slice.IDLE_GC, Slice.IDLE_COMPILE, Slice.IDLE_SYNC, Slice.IDLE_INPUT)
    for part, wait in zip(parts, waits, strict=True):
        assert found.slices[part] <= (wait or 0.0) * WHOLE
    assert found.slices[Slice.COMPUTE] <= used * WHOLE


def test_a_starved_gpu_waits_for_its_input_and_the_rest_is_said_to_be_unknown() -> None:
    found = running(job(gc=0.01, compile=0.0, sync=0.0, input=0.3), [GPU], "gpu")
    assert found.source == "estimate"
    assert percent(found) == {"compute": 55, "idle_input": 30, "idle_gc": 1, "idle_unknown": 14}
    assert (found.rest, found.notes) == (ON_GPU, ())


def test_what_overlaps_is_cut_in_the_order_of_a_traces_account() -> None:
    gpu = Reading({m.GPU_UTILISATION: 0.5})
    found = running(job(gc=0.2, compile=0.2, sync=0.0, input=0.9), [gpu], "gpu")
    assert percent(found) == {
        "compute": 50, "idle_gc": 20, "idle_compile": 20, "idle_input": 10,
    }  # fmt: skip


def test_a_read_that_waits_while_kernels_run_is_no_idle_time() -> None:
    gpu = Reading({m.GPU_UTILISATION: 0.9})
    busy = running(job(gc=0.0, compile=0.0, sync=0.8, input=0.0), [gpu], "gpu")
    assert Slice.IDLE_SYNC.value not in percent(busy)
    idle = running(job(sync=0.8), [Reading({m.GPU_UTILISATION: 0.3})], "gpu")
    assert percent(idle)["idle_sync"] == 50


def test_kernels_that_fill_few_multiprocessors_are_noted_and_not_counted_as_compute() -> None:
    gpu = Reading({m.GPU_UTILISATION: 1.0, m.GPU_SM_ACTIVITY: 0.1})
    found = running(job(gc=0.0, compile=0.0, sync=0.0, input=0.0), [gpu], "gpu")
    assert percent(found) == {"compute": 10, "idle_unknown": 90}
    assert "kernels ran for up to 100% of the time, and filled 10% of the SMs" in found.notes


def test_of_several_gpus_it_is_the_mean_and_none_where_one_is_not_read() -> None:
    other = Reading({m.GPU_UTILISATION: 0.2, m.GPU_SM_ACTIVITY: 0.15})
    assert percent(running(job(), [GPU, other], "gpu"))["compute"] == 35
    lost = Reading(unknown={m.GPU_UTILISATION: "GPU lost", m.GPU_SM_ACTIVITY: "GPU lost"})
    found = running(job(input=0.4), [GPU, lost], "gpu")
    assert percent(found) == {"idle_input": 40, "idle_unknown": 60}
    assert "utilisation: GPU lost" in found.notes


def test_a_trace_that_lacks_work_which_cycles_prove_does_not_count() -> None:
    for counted, why in (
        ({m.GPU_ENGINE_ACTIVITY: 0.9, m.GPU_SM_ACTIVITY: 0.5}, IT_LACKS_WORK),
        ({m.GPU_SM_ACTIVITY: 0.7}, IT_LACKS_WORK),
        ({m.GPU_SM_ACTIVITY: 0.5}, None),
        # That kernels ran all the time is a coarse figure.
        ({m.GPU_UTILISATION: 1.0}, None),
    ):
        used = {m.GPU_UTILISATION: 1.0, **counted}
        found = running(job(), [Reading(used)], "gpu", trace(compute=40, idle_dispatch=60), 5.0)
        assert found.not_counted == why


def test_on_a_cpu_compute_is_not_told_apart_from_what_prepares_it() -> None:
    found = running(job(gc=0.0, compile=0.0, sync=0.5, input=0.4), [], "cpu")
    assert percent(found) == {"idle_input": 40, "idle_unknown": 60}
    assert found.rest == ON_CPU
    assert "reads of values take 50%" in found.notes[0]


def test_without_any_part_that_was_measured_there_is_no_bar_but_the_reasons() -> None:
    found = running(Reading(unknown=dict.fromkeys(WAITS, "no agent in the job")), [], None)
    assert found.slices == {}
    assert found.rest == NOWHERE
    assert found.notes[0].endswith("loader wait: no agent in the job")
    nothing = running(job(gc=0.001, compile=0.0, sync=0.0, input=0.0), [], "cpu")
    assert (nothing.slices, nothing.rest, nothing.notes) == ({}, ON_CPU, ())


def test_a_framework_that_the_job_does_not_use_is_not_missed() -> None:
    job_reading = Reading(
        {m.JOB_LOADER_WAIT: 0.4}, {m.JOB_COMPILE: NO_JAX, m.JOB_SYNC_WAIT: "too old"}
    )
    assert running(job_reading, [], "cpu").notes == ("sync wait: too old",)


def test_utilisation_alone_is_something() -> None:
    found = running(job(), [Reading({m.GPU_UTILISATION: 0.4})], "gpu")
    assert percent(found) == {"compute": 40, "idle_unknown": 60}


FITS = job(gc=0.0, compile=0.0, sync=0.0, input=0.3)
TAKEN = trace(compute=50, idle_input=30, idle_dispatch=20)


def test_a_fresh_trace_counts_with_its_age() -> None:
    found = running(FITS, [GPU], "gpu", TAKEN, 12.0)
    assert (found.source, found.age, found.rest, found.notes) == ("trace", 12.0, None, ())
    assert percent(found) == {"compute": 50, "idle_input": 30, "idle_dispatch": 20}
    assert running(FITS, [GPU], "gpu", TAKEN, None).source == "estimate"


@pytest.mark.parametrize(
    ("taken", "job_reading", "gpu", "age", "why"),
    [
        (TAKEN, FITS, GPU, 601.0, TOO_OLD),
        (TAKEN, job(input=0.01), GPU, 5.0, IT_CHANGED),
        (TAKEN, FITS, Reading({m.GPU_UTILISATION: 0.1}), 5.0, IT_CHANGED),
        (trace(("cpu",), compute=1), FITS, GPU, 5.0, NO_GPU_IN_IT),
        (trace(), FITS, GPU, 5.0, NO_WORK),
    ],
)
def test_a_trace_that_no_longer_fits_does_not_count_and_it_is_said_why(
    taken: TraceSummary, job_reading: Reading, gpu: Reading, age: float, why: str
) -> None:
    found = running(job_reading, [gpu], "gpu", taken, age)
    assert (found.source, found.not_counted, found.trace) == ("estimate", why, taken)


def test_what_the_short_window_of_a_trace_has_missed_is_shown_beside_it() -> None:
    taken = trace(compute=50, idle_input=20, idle_unknown=30)
    found = running(job(compile=0.15, gc=0.04, input=0.2), [GPU], "gpu", taken, 1.0)
    assert found.source == "trace"
    assert found.notes == ("compile takes 15% of the main thread now, and 0% of the trace",)
    # What the trace itself says of the part that it cannot explain.
    assert found.rest == "all of it"


def test_on_a_cpu_a_trace_that_computed_while_it_now_waits_for_data_is_out_of_date() -> None:
    taken = trace(("cpu",), compute=90, idle_dispatch=10)
    assert running(job(input=0.0), [], "cpu", taken, 1.0).source == "trace"
    assert running(job(input=0.8), [], "cpu", taken, 1.0).not_counted == IT_CHANGED


def test_the_steps_of_a_trace_count_where_they_are_most_of_it() -> None:
    whole = budget(compute=50, idle_unknown=50)
    most, few = budget(compute=50, idle_gc=5), budget(compute=5)
    for steps, share in ((most, 91), (few, 50)):
        taken = trace(compute=1)
        found = running(Reading(), [], None, _with(taken, whole, steps), 1.0)
        assert percent(found)["compute"] == share


def _with(taken: TraceSummary, whole: dict[str, Any], steps: dict[str, Any]) -> TraceSummary:
    return replace(taken, budget=whole, step_budget=steps)


def _over(
    taken: TraceSummary, ns: int, outside_ns: int, step_ns: int | None = None
) -> TraceSummary:
    window = {"ns": ns, "asked_ns": None, "step_ns": step_ns, "outside_ns": outside_ns}
    return replace(taken, window=window)


def test_a_trace_of_less_than_a_step_does_not_count_and_it_is_said_by_how_much() -> None:
    short = _over(TAKEN, 60_000_000, 0, step_ns=177_000_000)
    found = running(FITS, [GPU], "gpu", short, 1.0)
    assert found.source == "estimate"
    why = "it covers 60 ms, less than one of the job's steps (177 ms)"
    assert found.not_counted == why
    whole = _over(TAKEN, 200_000_000, 0, step_ns=177_000_000)
    assert running(FITS, [GPU], "gpu", whole, 1.0).source == "trace"


def test_what_of_a_window_lies_outside_of_its_operations_is_no_compute() -> None:
    taken = trace(compute=3)
    found = running(Reading(), [], None, _over(taken, 250, 247), 1.0)
    assert percent(found) == {"compute": 1, "idle_unknown": 99}
    assert found.rest == NOT_RECORDED
    # Profilers take a moment to begin and to end.
    found = running(Reading(), [], None, _over(taken, 5, 2), 1.0)
    assert percent(found) == {"compute": 100}


def test_what_a_job_computes_on_is_what_its_framework_says() -> None:
    def estimate_on(backend: object, taken: TraceSummary | None = None) -> Running:
        member = inside(framework={"torch": {"backend": backend}, "jax": {}})
        return snapshot(member, job=FITS, traces=taken).estimate()

    assert estimate_on("cpu").rest == ON_CPU
    assert estimate_on("cuda").rest == ON_GPU
    assert estimate_on(7).rest == NOWHERE
    assert (estimate_on("cuda", TAKEN).source, estimate_on("cuda", TAKEN).age) == ("trace", 12.0)

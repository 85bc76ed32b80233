"""What is shown of a short trace: with the waits that the agent saw, and adding up as before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.windows import answer, recorded, stacks, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.estimate import running
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

SHORT = {Slice.COMPUTE: 0.3, Slice.IDLE_DISPATCH: 0.1, Slice.IDLE_UNKNOWN: 0.6}
BUSY = {Slice.COMPUTE: 0.6, Slice.IDLE_DISPATCH: 0.2, Slice.IDLE_UNKNOWN: 0.2}


def shares(blended: Window) -> dict[str, float]:
    assert blended.budget is not None
    total = sum(blended.budget["slices"].values())
    return {part: ns / total for part, ns in blended.budget["slices"].items() if ns}


def test_collections_that_the_trace_missed_come_out_of_the_unknown_first() -> None:
    blended = window(answer(SHORT), means={m.JOB_GC_PAUSE: 0.5})
    assert shares(blended) == pytest.approx(
        {"compute": 0.3, "idle_dispatch": 0.1, "idle_unknown": 0.1, "idle_gc": 0.5}
    )
    assert blended.budget_source == "trace 1, with what the agent saw"


def test_then_out_of_all_others_in_proportion() -> None:
    blended = window(answer(BUSY), means={m.JOB_GC_PAUSE: 0.6})
    assert shares(blended) == pytest.approx({"compute": 0.3, "idle_dispatch": 0.1, "idle_gc": 0.6})


@pytest.mark.parametrize(
    "means",
    [
        {m.JOB_GC_PAUSE: 0.333, m.JOB_COMPILE: 0.271},
        {m.JOB_GC_PAUSE: 0.9, m.JOB_COMPILE: 0.9, m.JOB_LOADER_WAIT: 0.9},
        {m.JOB_LOADER_WAIT: 1.7},
    ],
)
def test_it_adds_up_to_the_same(means: dict[Metric, float]) -> None:
    details = {Slice.COMPUTE: {"a": 0.2, "b": 0.1}}
    one = answer(BUSY, step_ms=7.001, details=details)
    account = window(one, means=means).budget
    assert account is not None
    assert sum(account["slices"].values()) == sum(one["budget"]["slices"].values())
    assert min(account["slices"].values()) >= 0
    for part, labels in account["details"].items():
        assert sum(labels.values()) <= account["slices"][part]


def test_rules_ask_the_trace_as_before() -> None:
    blended = window(answer(BUSY), means={m.JOB_GC_PAUSE: 0.6})
    compute = blended.share(Slice.COMPUTE)
    assert compute is not None
    assert compute.value == pytest.approx(0.6)


def test_what_is_nearly_the_same_changes_nothing() -> None:
    blended = window(answer(SHORT), means={m.JOB_GC_PAUSE: 0.04})
    assert blended.trace is not None
    assert blended.budget == blended.trace.account
    assert blended.budget_source == "trace 1"


def test_the_account_of_a_file_is_as_it_is() -> None:
    blended = window(answer(SHORT), means={m.JOB_GC_PAUSE: 0.5}, kind="file")
    assert blended.trace is not None
    assert blended.budget == blended.trace.account
    real = traced("h100_qwen05b")
    assert real.trace is not None
    assert real.budget == real.trace.account


def test_the_work_of_a_gpu_stays_while_the_host_waits() -> None:
    blended = window(answer(BUSY, kind="gpu"), means={m.JOB_LOADER_WAIT: 0.9})
    assert shares(blended) == pytest.approx({"compute": 0.6, "idle_input": 0.4})


def test_a_recorded_job_shows_what_is_found_in_it() -> None:
    found = shares(recorded("gc_pauses/before_torch"))
    assert found["idle_gc"] > 0.5


# Lines without a source: what runs there is not told apart from a call of the framework.
OWN, NUMPY, TORCH = (
    CodeLine("/u/train.py", 7, "augment"),
    CodeLine("/v/site-packages/numpy/sort.py", 1, "sort"),
    CodeLine("/v/site-packages/torch/nn/conv.py", 2, "forward"),
)
CPU = {"torch": {"backend": "cpu"}}


def sampled(numpy: float, torch: float, waited: float = 0) -> StackSamples:
    return stacks((NUMPY, (OWN,), numpy), (TORCH, (OWN,), torch), waited=waited)


def test_the_samples_say_what_no_trace_recorded_and_name_the_line() -> None:
    made = window(answer(SHORT), stacks=sampled(450, 550))
    assert shares(made) == pytest.approx(
        {"compute": 0.3, "idle_dispatch": 0.45, "idle_unknown": 0.25}
    )
    assert made.budget is not None
    assert made.budget["details"]["idle_dispatch"] == pytest.approx(
        {"augment() at train.py:7": 0.35 * made.budget["total_ns"]}
    )
    assert made.budget_source == "trace 1, with what the agent saw"


def test_more_than_the_unknown_is_not_explained() -> None:
    assert shares(window(answer(BUSY), stacks=sampled(900, 100))) == pytest.approx(
        {"compute": 0.6, "idle_dispatch": 0.4}
    )


def test_a_few_samples_explain_nothing() -> None:
    made = window(answer(SHORT), stacks=sampled(6, 6))
    assert made.trace is not None
    assert made.budget == made.trace.account


def estimate(job: Window, *gpus: Reading) -> Window:
    device = job.device
    return replace(job, estimate=running(Reading(dict(job.job.means)), gpus, device))


def test_without_a_trace_a_cpu_computes_where_the_framework_was_found() -> None:
    made = estimate(window(facts=CPU, stacks=sampled(200, 800, waited=0.1)))
    # NumPy never waits, unless for an array of the framework's.
    assert shares(made) == pytest.approx({"compute": 0.82, "idle_dispatch": 0.18})
    assert made.budget_source == "estimate"
    assert Slice.IDLE_QUEUE in made.not_measured


def test_without_a_trace_a_rank_on_a_cpu_waits_in_the_framework_for_the_others() -> None:
    facts = {"torch": {"backend": "cpu", "world_size": 2}}
    samples = stacks((TORCH, (OWN,), 900), waited=0.9)
    assert shares(estimate(window(facts=facts, stacks=samples))) == pytest.approx(
        {"compute": 0.1, "exposed_comm": 0.9}
    )
    assert shares(estimate(window(facts=CPU, stacks=samples))) == {"compute": 1.0}


def test_without_a_trace_jax_may_compute_beside_the_main_thread() -> None:
    jax = CodeLine("/v/site-packages/jax/_src/array.py", 2, "block_until_ready")
    samples = StackSamples()
    samples.count(Chain((OWN,), NUMPY, NUMPY), 600)
    samples.count(Chain((OWN,), jax, jax), 400)
    made = estimate(window(facts={"jax": {"backend": "cpu"}}, stacks=samples))
    assert shares(made) == pytest.approx({"compute": 0.4, "idle_unknown": 0.6})
    # Its other threads run for 0.6 of the time: in 0.4 the thread waits for them.
    cpu = {
        m.HOST_CORES: 4.0, m.JOB_CPU: 1.2, m.PROCESS_CPU: 1.2, m.JOB_MAIN_THREAD: 0.6,
    }  # fmt: skip
    known = estimate(window(facts={"jax": {"backend": "cpu"}}, stacks=samples, means=cpu))
    assert shares(known) == pytest.approx({"compute": 0.6, "idle_dispatch": 0.4})


def test_without_a_trace_a_gpu_is_idle_as_far_as_its_counters_say() -> None:
    cuda, samples = {"torch": {"backend": "cuda"}}, sampled(300, 700)
    busy = Reading({m.GPU_UTILISATION: 0.4})
    assert shares(estimate(window(facts=cuda, stacks=samples), busy)) == pytest.approx(
        {"compute": 0.4, "idle_dispatch": 0.6}
    )
    assert estimate(window(facts=cuda, stacks=samples)).budget is None


def part(slices: dict[Slice, float], step_ms: float, window_json: object = None) -> dict[str, Any]:
    made = answer(slices, step_ms=step_ms, window=window_json)
    return made | {"steps": {"count": 0, "median_ns": None, "source": "none"}}


@pytest.mark.parametrize("said", [None, {"ns": 10**8, "step_ns": 10**9, "source": "agent"}])
def test_traces_shorter_than_a_step_are_parts_of_the_loop(said: object) -> None:
    forward = part({Slice.COMPUTE: 0.9, Slice.IDLE_DISPATCH: 0.1}, 30, said)
    between = part({Slice.COMPUTE: 0.5, Slice.IDLE_INPUT: 0.5}, 10, said)
    nothing = part({Slice.IDLE_UNKNOWN: 1.0}, 10, said)
    parts = forward, between, nothing
    assert window(*parts, means={m.JOB_STEP_P50: 0.5}, facts=CPU).budget is None
    made = window(*parts, means={m.JOB_STEP_P50: 0.35}, facts=CPU)
    assert made.trace is None
    assert made.budget_source == "parts of a step in trace 1, trace 2"
    assert shares(made) == pytest.approx(
        {"compute": 0.8, "idle_dispatch": 0.075, "idle_input": 0.125}
    )

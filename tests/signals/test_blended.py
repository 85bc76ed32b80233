"""What is shown of a short trace: with the waits that the agent saw, and adding up as before."""

from __future__ import annotations

import pytest

from tests.rules.windows import answer, recorded, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
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

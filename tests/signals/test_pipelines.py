"""What a pipeline of tf.data does one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import found, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.signals.pipelines import pipeline_of
from whyidle.monitor.signals.window import Window

MAP = {"stage": "Map", "function": ["/me/train.py", 12, "decode"], "python": False}
SOURCE = {"stage": "TensorSlice"}


def job(*stages: dict[str, Any], **means: float) -> Window:
    facts = {"tensorflow": {"pipelines": [list(stages)], "functions": 1, "backend": "cpu"}}
    return window(facts=facts, inside=True, means={m.JOB_LOADER_WAIT: 0.7, m.JOB_STEPS: 10.0})


@pytest.mark.parametrize(
    ("stages", "cure"),
    [
        ((SOURCE, MAP, {"stage": "Batch"}, {"stage": "Prefetch"}), "num_parallel_calls"),
        ((SOURCE, {"stage": "Shuffle"}, {"stage": "Batch"}), "prefetch(tf.data.AUTOTUNE)"),
        (
            (SOURCE, {"stage": "ParallelBatch"}, {"stage": "Shuffle"}, {"stage": "Prefetch"}),
            "Shuffle before batch",
        ),
        (({"stage": "Generator"}, {"stage": "Batch"}, {"stage": "Prefetch"}), "Python"),
        (
            (SOURCE, MAP | {"stage": "ParallelMap", "python": True}, {"stage": "Prefetch"}),
            "Python",
        ),
    ],
)
def test_each_fault_has_its_cure(stages: tuple[dict[str, Any], ...], cure: str) -> None:
    pipeline = pipeline_of(job(*stages))
    assert pipeline is not None
    assert cure in pipeline.fix.text


def test_a_pipeline_that_works_ahead() -> None:
    good = (SOURCE, {"stage": "Shuffle"}, MAP | {"stage": "ParallelMap"}, {"stage": "Batch"})
    assert pipeline_of(job(*good, {"stage": "Prefetch"})) is None
    assert pipeline_of(window(inside=True)) is None


def test_the_wait_for_it_is_input_starved() -> None:
    finding = found("input_starved", job(SOURCE, MAP, {"stage": "Batch"}))
    assert finding.fixes is not None
    assert "num_parallel_calls" in finding.fixes["tensorflow"].text
    said = {each.name: each.value for each in finding.evidence}
    assert said["pipeline"] == "TensorSlice, Map(decode), Batch"


def test_a_job_of_another_that_only_reads_data_with_it() -> None:
    facts = {"jax": {"backend": "gpu"}, "tensorflow": {"pipelines": []}}
    assert window(facts=facts).frameworks == ("jax",)
    both = {"jax": {"backend": "gpu"}, "tensorflow": {"functions": 2}}
    assert set(window(facts=both).frameworks) == {"jax", "tensorflow"}

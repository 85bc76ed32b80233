"""What a pipeline of tf.data does one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Found, Severity, SourceLine
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
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


READ = {"stage": "ParallelInterleave"}
CACHE = {"stage": "Cache"}


@pytest.mark.parametrize(
    ("stages", "is_kept"),
    [
        ((SOURCE, READ, {"stage": "ParallelMap"}, {"stage": "Batch"}, MAP), True),
        (({"stage": "TFRecord"}, {"stage": "Batch"}), True),
        (({"stage": "TextLine"}, MAP, {"stage": "Batch"}, {"stage": "Prefetch"}), True),
        # Arrays in memory; a cache; and what is made, which may be new each time.
        ((SOURCE, {"stage": "Batch"}), False),
        ((SOURCE, READ, CACHE, MAP, {"stage": "Batch"}), False),
        ((SOURCE, READ, {"stage": "Snapshot"}, {"stage": "Batch"}), False),
        (({"stage": "Generator"}, MAP, {"stage": "Batch"}), False),
    ],
)
def test_what_is_read_anew_in_each_pass_is_kept(
    stages: tuple[dict[str, Any], ...], is_kept: bool
) -> None:
    pipeline = pipeline_of(job(*stages))
    assert pipeline is not None
    assert (".cache() it" in pipeline.fix.text) is is_kept
    assert (".cache()" in pipeline.fix.code) is is_kept


@pytest.mark.parametrize("last", [{"stage": "Batch"}, {"stage": "Prefetch"}])
def test_where_passes_are_short_what_works_ahead_helps_no_wait(last: dict[str, Any]) -> None:
    short = job(SOURCE, READ, MAP, last)
    short.job.facts["tensorflow"].update(first_waits=0.8, batches_of_pass=9)
    pipeline = pipeline_of(short)
    assert pipeline is not None
    assert "one iterator" in pipeline.fix.text
    assert "cache" not in pipeline.fix.text
    assert ".repeat()" in pipeline.fix.code
    assert {x.name: x.value for x in pipeline.evidence}["batches of a pass"] == "9"
    # Of long passes the first wait is little of all.
    short.job.facts["tensorflow"].update(first_waits=0.3, batches_of_pass=400)
    pipeline = pipeline_of(short)
    assert pipeline is not None
    assert "one iterator" not in pipeline.fix.text


def test_a_pipeline_that_works_ahead() -> None:
    good = (SOURCE, {"stage": "Shuffle"}, MAP | {"stage": "ParallelMap"}, {"stage": "Batch"})
    assert pipeline_of(job(*good, {"stage": "Prefetch"})) is None
    assert pipeline_of(window(inside=True)) is None
    once = (SOURCE, MAP, {"stage": "Cache"}, {"stage": "Repeat"}, {"stage": "Batch"})
    assert pipeline_of(job(*once, {"stage": "Prefetch"})) is None


EXECUTE = CodeLine("/v/site-packages/tensorflow/python/eager/execute.py", 53, "quick_execute")


def in_fit(waited: float, *stages: dict[str, Any]) -> Window:
    stacks = StackSamples()
    stacks.samples = 200
    stacks.count(Chain((CodeLine("/me/train.py", 30, "main"),), EXECUTE), 200, 200, waited)
    facts = {"tensorflow": {"pipelines": [list(stages)], "functions": 1, "backend": "cpu"}}
    return window(facts=facts, inside=True, stacks=stacks, means={m.JOB_STEPS: 10.0})


def test_a_graph_that_asks_a_serial_pipeline_is_a_hint() -> None:
    serial = (SOURCE, MAP, {"stage": "Batch"})
    finding = found("input_starved", in_fit(160, *serial))
    assert (finding.severity, finding.confidence) == (Severity.INFO, Confidence.HINTED)
    assert finding.where[0].line == 12
    # It hardly waits; or what makes the batches works ahead.
    assert not isinstance(judge("input_starved", in_fit(10, *serial)), Found)
    ahead = (SOURCE, MAP | {"stage": "ParallelMap"}, {"stage": "Batch"}, {"stage": "Prefetch"})
    assert not isinstance(judge("input_starved", in_fit(160, *ahead)), Found)


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
    # Eager code has no function, and computes: Keras has loaded the other one.
    eager = {"jax": {"version": "0.10"}, "tensorflow": {"backend": "cpu", "pipelines": []}}
    assert window(facts=eager).frameworks == ("tensorflow",)


GENERATOR = [{"stage": "Generator"}, {"stage": "Batch"}]


def of_threads(stages: list[dict[str, object]], ran: float, looks: float = 100) -> Window:
    """Return a window of ``fit``, in which other threads were in the generator so often."""
    made = CodeLine("/job/data.py", 8, "images")
    samples = StackSamples()
    samples.samples = looks + ran
    agent = CodeLine("<_whyidle_agent.control>", 9, "wait")
    samples.count(Chain((), agent), looks, looks, looks)
    samples.count(Chain((made,), made), ran, ran, 0)
    facts = {"tensorflow": {"pipelines": [stages], "functions": 1, "backend": "cpu"}}
    return window(facts=facts, threads=samples, inside=True)


def test_a_generator_that_the_graph_of_fit_waits_for() -> None:
    finding = found("input_starved", of_threads(GENERATOR, 60))
    assert 0.4 < finding.evidence[0].value < 0.6
    assert "a Python function makes each element" in str([e.value for e in finding.evidence])
    assert [(p.file, p.line) for p in finding.where] == [("/job/data.py", 8)]
    # Too few looks, and too little of it.
    assert not isinstance(judge("input_starved", of_threads(GENERATOR, 6, 10)), Found)
    assert not isinstance(judge("input_starved", of_threads(GENERATOR, 4)), Found)


def test_what_is_made_ahead_costs_nothing_while_it_keeps_up() -> None:
    ahead = [*GENERATOR, {"stage": "Prefetch"}]
    assert not isinstance(judge("input_starved", of_threads(ahead, 60)), Found)
    assert isinstance(judge("input_starved", of_threads(ahead, 100)), Found)
    graph = [{"stage": "ParallelMap"}, {"stage": "Batch"}]
    assert not isinstance(judge("input_starved", of_threads(graph, 60)), Found)


def test_a_generator_too_short_to_be_seen_stands_where_the_pipeline_is_made(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "def windows(data, spec):\n"
        "    made = tf.data.Dataset.from_generator(data.each, output_signature=spec)\n"
        "    return made.batch(64)\n"
        "for x, y in windows(data, spec):\n"
        "    train(x, y)\n"
    )
    facts = {"tensorflow": {"pipelines": [GENERATOR], "functions": 1, "backend": "cpu"}}
    lines = (SourceLine(str(file), 4, "<module>", 0.8), SourceLine(str(file), 5, "<module>", 0.2))
    means = {m.JOB_LOADER_WAIT: 0.7, m.JOB_STEPS: 10.0}
    finding = found("input_starved", window(facts=facts, inside=True, lines=lines, means=means))
    assert [place.line for place in finding.where] == [2, 4]


def test_keras_on_pytorch_is_no_job_of_jax() -> None:
    facts = {"jax": {"version": "0.10.2"}, "torch": {"backend": "cpu"}}
    assert window(facts=facts).frameworks == ("pytorch",)
    assert window(facts={**facts, "jax": {"backend": "cpu"}}).frameworks == ("jax", "pytorch")

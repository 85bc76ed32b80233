"""The probe in a program of TensorFlow: what it counts, what it says, and that nothing stays."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from whyidle.agents import wire
from whyidle.agents.retraces import ANEW
from whyidle.monitor.demo.pairs import runner

PROGRAM = Path(__file__).with_name("program.py")
STYLES = Path(__file__).with_name("styles.py")


@cache
def said(program: Path = PROGRAM) -> dict[str, Any]:
    python = runner("tensorflow")
    if python is None:
        pytest.skip("TensorFlow is not installed: .ci/tensorflow")
    done = subprocess.run(
        [python, "-B", str(program)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def traced(name: str, function: str) -> list[list[Any]]:
    return [record for record in said()[name]["compiled"] if record[3] == function]


def test_nothing_stays_behind_and_nothing_is_missing() -> None:
    assert said()["left"] == []
    assert said()["said"] == []


def test_programs_of_any_style_come_to_the_same() -> None:
    answer = said(STYLES)
    assert answer["before"] == answer["inside"] == answer["after"]
    assert len(answer["before"]) == 13
    assert answer["said"] == []


@pytest.mark.parametrize(
    ("name", "function", "reason"),
    [
        ("by_shape", "plain_step", "at x: now float32[7,8], before float32[6,8]"),
        ("by_number", "scaled", "at n: now the Python value 3, before the Python value 2"),
        ("made_anew", "<lambda>", ANEW),
    ],
)
def test_why_a_function_is_traced_again_and_from_which_line(
    name: str, function: str, reason: str
) -> None:
    records = traced(name, function)
    assert records[0][5] is None
    assert records[-1][5] == reason
    assert len(records) >= 4
    for each in records:
        file, line, _ = each[6]
        assert Path(file).name == PROGRAM.name
        assert "(tf.ones" in PROGRAM.read_text().splitlines()[line - 1]
    assert said()[name]["figures"][wire.COMPILES] >= 4
    assert said()[name]["figures"][wire.COMPILE_NS] > 0


def test_each_new_object_of_the_jobs_is_a_reason() -> None:
    records = traced("by_object", "with_setting")
    assert len(records) == 6
    for each in records[1:]:
        assert each[5].startswith("at setting: now an object that is gone (0x")


def test_what_the_job_passes_is_not_asked_to_write_itself_down() -> None:
    reasons = [each[5] for each in traced("by_odd_value", "with_odd")]
    assert reasons[2].startswith("at _odd: now the Python value 'aaa")
    assert reasons[2].endswith("before the Python value of type Bare")
    assert all(each is None or len(each) < 200 for each in reasons)


def test_a_step_that_is_a_graph_is_traced_no_more_and_ticks() -> None:
    # Once, and no more.
    assert len(traced("steady", "plain_step")) == 1
    kind, _, source, _, count, _ = said()["steady"]["steps"]
    assert (kind, source) == ("steps", "tf.function")
    # Between six calls.
    assert count == 5
    assert said()["steady"]["figures"][wire.SYNCS] >= 5


def test_what_computes_no_gradients_beside_a_step_is_none() -> None:
    # The rest of thirty after ten of them, the last one of those included: not the one in ten.
    assert said()["beside_others"]["steps"][4] == 20


@pytest.mark.parametrize(("name", "steps"), [("beside_texts", 10), ("delayed", 20)])
def test_the_same_step_counts_from_the_first_to_the_last(name: str, steps: int) -> None:
    assert said()[name]["steps"][4] == steps


def test_a_step_without_a_graph_ticks_by_its_optimizer() -> None:
    assert said()["eager"]["steps"][2] == "optimizer"
    assert said()["eager"]["steps"][4] == 5 - 1
    assert not said()["eager"]["compiled"]


def test_batches_are_counted_with_the_stages_of_their_pipeline() -> None:
    figures = said()["batches"]["figures"]
    assert said()["batches"]["value"] == 3
    assert figures[wire.LOADER_BATCHES] == figures[wire.MOST_BATCHES] == 3
    assert figures[wire.LOADER_WAIT_NS] > 0
    (stages,) = said()["batches"]["facts"]["pipelines"]
    assert [each["stage"] for each in stages][-3:] == ["Map", "Batch", "Shuffle"]
    assert "Generator" in [each["stage"] for each in stages]
    mapped = next(each for each in stages if each["stage"] == "Map")
    assert mapped["function"][2] == "twice"
    assert mapped["python"] is False


def test_each_batch_of_fit_is_a_step() -> None:
    assert said()["fit"]["steps"][4] == 8 - 1


def test_what_tensorflow_says_of_itself() -> None:
    facts = said()["fit"]["facts"]
    assert facts["backend"] == "cpu"
    assert facts["works_ahead"] is False
    assert facts["keras_backend"] == "tensorflow"
    assert facts["version"].startswith("2.")
    assert facts["run_functions_eagerly"] is False


def test_in_which_types_the_products_of_a_graph_are_and_what_the_policy_says() -> None:
    facts = {name: said()[name]["facts"] for name in ("fit", "mixed", "set_late")}
    assert set(facts["fit"]["products"]) == {"float32"}
    assert facts["fit"]["dtype_policy"] == "float32"
    assert set(facts["mixed"]["products"]) == {"bfloat16"}
    assert facts["mixed"]["dtype_policy"] == "mixed_bfloat16"
    # What was built before stays as it was.
    assert set(facts["set_late"]["products"]) == {"float32"}
    assert facts["set_late"]["dtype_policy"] == "mixed_bfloat16"


def test_on_how_many_devices_a_graph_is() -> None:
    both, one = said()["mirrored"]["facts"], said()["fit"]["facts"]
    assert (one["devices"], one["devices_used"]) == (2, 1)
    assert (both["devices"], both["devices_used"]) == (2, 2)


def test_passes_over_the_data_are_told_from_each_other() -> None:
    figures, facts = said()["passes"]["figures"], said()["passes"]["facts"]
    assert figures[wire.LOADER_BATCHES] == said()["passes"]["value"] == 30 * (5 + 1)
    assert figures[wire.MOST_BATCHES] == 30 * 5
    assert facts["batches_of_pass"] == 5
    # Each begins a pipeline, and that takes longer than one of its five batches.
    assert facts["first_waits"] >= 0.3

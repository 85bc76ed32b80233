"""The bench of faults: each family has its places, each fault makes a program that parses."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from benchmarks.faultbench.cases import HEALTHY, Case, cases
from benchmarks.faultbench.check_family import mistakes
from benchmarks.faultbench.mutations import MUTATIONS, Insert, Mutation
from benchmarks.faultbench.program import MARK, NotApplicable, Program, families
from benchmarks.faultbench.report import of_rows
from whyidle.monitor import rules

SOURCE = """\
import jax

def train(x, y):
    for step in range(9):
        loss = f(x, y)
        #@ step loss=loss batch=x,y index=step
"""


@pytest.mark.parametrize("family", families())
def test_the_places_of_a_family_are_places(family: str) -> None:
    assert list(mistakes(family)) == []


def test_each_case_is_a_program_and_knows_the_lines_of_its_fault() -> None:
    for case in cases():
        program = case.program()
        for file, lines in program.files.items():
            ast.parse("\n".join(line.removesuffix(MARK) for line in lines), file)
        changed = any(line.endswith(MARK) for lines in program.files.values() for line in lines)
        elsewhere = program.neighbours or program.environment
        assert changed or elsewhere or case.fault == HEALTHY, case.id


def test_each_fault_has_a_place_somewhere_and_names_rules_that_there_are() -> None:
    placed = Counter(case.fault for case in cases())
    # No family donates buffers yet.
    assert {mutation.name for mutation in MUTATIONS} - placed.keys() <= {"not_donated"}
    named = {name for mutation in MUTATIONS for name in mutation.faults}
    assert named <= rules.load().keys()


def test_cases_are_drawn_by_their_names_alone() -> None:
    assert list(cases()) == list(cases())
    one = families()[0]
    assert list(cases([one])) == [case for case in cases() if case.family == one]


def program() -> Program:
    return Program("made", {"main.py": SOURCE.splitlines()})


def test_code_is_put_at_an_anchor_and_a_line_for_each_of_several() -> None:
    made = program()
    insert = Insert("step", "n = len({batch[0]})\n{*batch} = {*batch}[:n]", ("batch",), "import os")
    Mutation(("retracing",), insert=(insert,)).apply(made)
    text = "\n".join(made.files["main.py"]).replace(MARK, "")
    assert "        n = len(x)\n        x = x[:n]\n        y = y[:n]\n        #@ step" in text
    assert text.startswith("import jax\nimport os\n")


def test_a_program_without_the_names_has_no_place() -> None:
    for needs, code in ((("model",), "{model}"), ((), "{opt}")):
        with pytest.raises(NotApplicable):
            Mutation((), insert=(Insert("step", code, needs),)).apply(program())
    with pytest.raises(NotApplicable):
        Mutation((), framework="torch").apply(program())


def test_the_scores_count_faults_and_healthy_cases_apart() -> None:
    row = {"family": "a", "unknown": 0.2, "unharmed": True, "is_fault": True}
    fault = {
        "right_first": True, "right_anywhere": True, "right_line": False, "py_spy_line": True,
        "promised": [1.1, 1.3], "covered": True, "width": 1.18, "interval_score": 0.2,
        "first_s": 12,
    }  # fmt: skip
    missed = {**fault, "right_first": False, "promised": None, "covered": None, "first_s": None}
    healthy = {"is_fault": False, "loud_false": ["gc_pauses"], "unknown": 0.1}
    found = of_rows([row | fault, row | missed, row | healthy])
    assert (found["cases"], found["healthy"], found["right_first"]) == (2, 1, 0.5)
    assert (found["loud_false"], found["coverage"], found["median_width"]) == (1, 1, 1.18)
    assert found["unknown_over_15"] == pytest.approx(2 / 3, abs=1e-3)
    assert found["seconds_to_finding"] == 12


def test_a_case_knows_its_twin() -> None:
    case = Case("a", "sleeps", 0.25, 35)
    assert (case.id, case.twin) == ("a.sleeps.x0.25", "a.healthy.x0.25")

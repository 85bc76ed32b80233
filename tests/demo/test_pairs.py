"""The programs of the demos, as files: what a pair is, and that only its fix is different."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from whyidle.monitor import rules
from whyidle.monitor.demo import pairs
from whyidle.monitor.demo.pairs import Pair
from whyidle.monitor.errors import Problem, UsageProblem

ALL = pairs.all_pairs()
PROGRAMS = sorted(path for path in pairs.folder().rglob("*.py") if path.name != "__init__.py")
EACH = pytest.mark.parametrize("pair", ALL, ids=lambda pair: f"{pair.name}-{pair.framework}")
EACH_PROGRAM = pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: f"{p.parent.name}-{p.stem}")
# A fix is a few lines: what is longer is another program.
MOST_CHANGED = 20
LONGEST = 120


@EACH
def test_a_pair_is_about_rules_that_there_are(pair: Pair) -> None:
    known = rules.load()
    assert pair.faults
    assert all(name in known and not known[name].is_planned for name in pair.faults)


@EACH
def test_only_the_fix_is_different(pair: Pair) -> None:
    changed = pairs.change(pair)
    assert 0 < len(changed) <= MOST_CHANGED
    assert {side: (pair.script(side).stem) for side in pairs.SIDES} == {
        side: f"{side}_{pair.framework}" for side in pairs.SIDES
    }
    before, after = (pair.script(side).read_text().splitlines() for side in pairs.SIDES)
    # What is no line of the fix is the same, and in the same order; but for the file's own name.
    told = {(each.line, each.is_new) for each in changed}
    left = [line for i, line in enumerate(before, 1) if (i, False) not in told]
    kept = [line for i, line in enumerate(after, 1) if (i, True) not in told]
    named = f"/after_{pair.framework}.py", f"/before_{pair.framework}.py"
    assert left == [line.replace(*named) for line in kept]


@EACH
def test_a_fix_is_shown_in_the_order_of_the_file(pair: Pair) -> None:
    changed = pairs.change(pair)
    for is_new in (False, True):
        lines = [each.line for each in changed if each.is_new is is_new]
        assert lines == sorted(lines)


@EACH_PROGRAM
def test_a_program_is_short_and_says_how_it_is_run(path: Path) -> None:
    text = path.read_text()
    place = path.relative_to(pairs.folder().parent)
    assert len(text.splitlines()) <= LONGEST
    assert f"\nRun: python {place} " in (ast.get_docstring(ast.parse(text)) or "")


@EACH_PROGRAM
def test_a_program_is_seeded_and_can_be_made_short(path: Path) -> None:
    text = path.read_text()
    assert "SEED = " in text
    assert "(SEED)" in text
    assert '"--seconds"' in text
    assert '"--steps"' in text


def test_there_are_stories_of_two_faults_and_healthy_jobs_for_each_framework() -> None:
    stories = [pair for pair in ALL if pair.is_story]
    assert {pair.framework for pair in stories} == set(pairs.WORDS)
    assert {name.split("_")[-1] for name in pairs.healthy()} == set(pairs.WORDS)


def test_what_is_shown_to_who_asks_for_nothing_is_there() -> None:
    there = {(pair.name, pair.framework) for pair in ALL}
    assert set(pairs.CURATED) <= there


def test_a_pair_is_found_by_its_name_and_framework() -> None:
    assert pairs.named("input_starved", "torch", ALL).framework == "torch"
    assert pairs.named("input_starved", "jax", ALL).framework == "jax"


def test_of_two_frameworks_the_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "installed", lambda framework: framework == "torch")
    assert pairs.named("gc_pauses", None, ALL).framework == "torch"


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(UsageProblem) as told:
        pairs.named("input_starvd", None, ALL)
    assert told.value.next_step.startswith("Did you mean: monitor demo input_starved")


def test_a_name_that_is_like_none_is_answered_with_the_list() -> None:
    with pytest.raises(UsageProblem) as told:
        pairs.named("xyz", None, ALL)
    assert told.value.next_step == "List them: monitor demo --list"


def test_a_framework_that_a_fault_has_no_demo_for() -> None:
    with pytest.raises(UsageProblem) as told:
        pairs.named("retracing", "torch", ALL)
    assert "retracing for PyTorch" in told.value.what
    assert told.value.next_step == "Type: monitor demo retracing --framework jax"


def test_half_a_pair_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "input_starved"
    folder.mkdir()
    (folder / "before_jax.py").write_text('"""Train."""\n')
    assert pairs.all_pairs(tmp_path) == []
    (folder / "after_jax.py").write_text('"""Train."""\nfast = True\n')
    (pair,) = pairs.all_pairs(tmp_path)
    assert pair.about == "Train."
    assert [(each.line, each.text, each.is_new) for each in pairs.change(pair)] == [
        (2, "fast = True", True)
    ]


def test_demos_that_are_not_installed_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "find_spec", lambda _name: None)
    with pytest.raises(Problem) as told:
        pairs.folder()
    assert pairs.INSTALL in told.value.next_step

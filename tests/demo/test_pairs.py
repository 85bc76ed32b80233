"""The programs of the demos, as files: what a pair is, and that only its fix is different."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.gpu.story import PAIRS
from whyidle.monitor import rules
from whyidle.monitor.core.errors import Problem, StorageProblem, UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.demo import pairs
from whyidle.monitor.demo.pairs import Pair
from whyidle.monitor.demo.patch import changed
from whyidle.monitor.render import demo_list

ALL = pairs.all_pairs()
FOR_A_GPU = pairs.all_pairs(PAIRS)
FILES = [path for path in pairs.folder().rglob("*.py") if path.name != "__init__.py"]
# With those after a fix, which are no files.
PROGRAMS = sorted({*FILES, *(p.with_name(p.name.replace("before_", "after_")) for p in FILES)})
IN_PYTHON = [pair for pair in ALL if pair.framework not in pairs.ENDINGS]
OTHERS = [pair for pair in ALL if pair not in IN_PYTHON]
EACH = pytest.mark.parametrize("pair", ALL, ids=lambda pair: f"{pair.name}-{pair.framework}")
EACH_IN_PYTHON = pytest.mark.parametrize(
    "pair", IN_PYTHON, ids=lambda pair: f"{pair.name}-{pair.framework}"
)
EACH_PROGRAM = pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: f"{p.parent.name}-{p.stem}")
# A fix is a few lines: what is longer is another program.
MOST_CHANGED = 20
# So many functions and classes may be another code: where the fix is, and where it is called.
MOST_DEFINITIONS = 2
# What a fix changes, of all that a program sets at its top.
SET_BY_FIX = {
    ("buffers_not_donated", "jax"): {"step"},
    ("cpu_starved", "torch"): {"THREADS"},
    ("few_cpus_allowed", "torch"): {"CORES"},
    ("environment_stepping", "torch"): {"ENVIRONMENTS"},
    ("input_starved", "jax"): {"AHEAD", "WORKERS"},
    ("tiny_work", "torch"): {"BATCH"},
    ("too_little_after_warmup", "jax"): {"MOST", "WARM_UP"},
}
LONGEST = 120


@EACH
def test_a_pair_is_about_rules_that_there_are(pair: Pair) -> None:
    known = rules.load()
    assert pair.faults
    assert all(name in known for name in pair.faults)


def settings(program: ast.Module) -> dict[str, str]:
    """Return what a program sets at its top, by name."""
    found = {}
    for each in program.body:
        if isinstance(each, ast.Assign):
            name, value = each.targets[0], each.value
            if isinstance(name, ast.Tuple) and isinstance(value, ast.Tuple):
                found |= {
                    ast.unparse(n): ast.unparse(v)
                    for n, v in zip(name.elts, value.elts, strict=True)
                }
            else:
                found[ast.unparse(name)] = ast.unparse(value)
    return found


def definitions(program: ast.Module) -> dict[str, str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {each.name: ast.dump(each) for each in program.body if isinstance(each, kinds)}


def unlike(one: dict[str, str], two: dict[str, str]) -> set[str]:
    return {name for name in {*one, *two} if one.get(name) != two.get(name)}


def said(program: ast.Module) -> str:
    """Return what a program prints last: its steps, their time, its samples."""
    calls = [each for each in ast.walk(program) if isinstance(each, ast.Call)]
    prints = [each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "print"]
    return ast.unparse(max(prints, key=lambda each: each.lineno))


@EACH_IN_PYTHON
def test_only_the_fix_is_different(pair: Pair) -> None:
    assert len(changed(pair.fix)) <= MOST_CHANGED
    before, after = (ast.parse(pair.text(side)) for side in pairs.SIDES)
    assert unlike(settings(before), settings(after)) == SET_BY_FIX.get(
        (pair.name, pair.framework), set()
    )
    assert len(unlike(definitions(before), definitions(after))) <= MOST_DEFINITIONS
    assert said(before) == said(after)
    assert "ms a step" in said(before)
    # How it is asked to run, and for how long.
    assert ast.dump(before.body[-1]) == ast.dump(after.body[-1])


@pytest.mark.parametrize("pair", OTHERS, ids=lambda pair: f"{pair.name}-{pair.framework}")
def test_a_pair_in_another_language_differs_in_its_fix_alone(pair: Pair) -> None:
    changes = changed(pair.fix)
    assert len(changes) <= MOST_CHANGED
    place = pair.folder.relative_to(pairs.folder().parent)
    for side in pairs.SIDES:
        text = pair.text(side)
        assert len(text.splitlines()) <= LONGEST
        assert f"\n# Run: {pair.framework} {place}/{side}_{pair.framework}.jl --seconds " in text
        assert pair.about in text
        assert "const SEED = " in text
        assert "(SEED)" in text
        assert '"--seconds"' in text
        assert '"--steps"' in text
        assert "ms a step" in text
    assert not any("a step" in each.text for each in changes)


@pytest.mark.parametrize("pair", [*ALL, *FOR_A_GPU], ids=lambda p: f"{p.name}-{p.framework}")
def test_a_fix_is_shown_as_it_is_applied(pair: Pair) -> None:
    for side, is_new in (("before", False), ("after", True)):
        lines = pair.text(side).splitlines()
        changes = [each for each in changed(pair.fix) if each.is_new is is_new]
        assert all(lines[each.line - 1] == each.text for each in changes)
        assert changes == sorted(changes, key=lambda each: each.line)
        assert pair in OTHERS or ast.parse(pair.text(side))


@pytest.mark.parametrize("root", [pairs.folder(), PAIRS], ids=lambda root: root.name)
def test_no_program_after_a_fix_is_a_file_and_no_fix_is_left_over(root: Path) -> None:
    assert not [*root.rglob("after_*")]
    assert len([*root.rglob("fix_*")]) == len(pairs.all_pairs(root))


def test_the_program_after_a_fix_lies_beside_the_recordings_and_stays_while_it_is_the_same(
    state: Path,
) -> None:
    pair = pairs.named("gc_pauses", "torch")
    path = pair.script("after")
    assert path == state / "demos" / "demo_workloads" / "gc_pauses" / "after_torch.py"
    assert path.read_text() == pair.text("after")
    made = path.stat()
    assert pair.script("after").stat() == made
    path.write_text("of another version")
    assert pair.script("after").read_text() == pair.text("after")
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_where_nothing_can_be_written_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHYIDLE_STATE_DIR", "/proc/self/no")
    with pytest.raises(StorageProblem) as raised:
        pairs.named("gc_pauses", "torch").script("after")
    assert "WHYIDLE_STATE_DIR" in raised.value.next_step


@EACH_PROGRAM
def test_a_program_is_short_and_says_how_it_is_run(path: Path) -> None:
    text = pairs.text_of(path)
    place = path.relative_to(pairs.folder().parent)
    assert len(text.splitlines()) <= LONGEST
    assert f"\nRun: python {place} " in (ast.get_docstring(ast.parse(text)) or "")


@EACH_PROGRAM
def test_a_program_is_seeded_and_can_be_made_short(path: Path) -> None:
    text = pairs.text_of(path)
    assert "SEED = " in text
    assert "(SEED)" in text
    assert '"--seconds"' in text
    assert '"--steps"' in text
    assert "import whyidle" not in text
    assert "from whyidle" not in text


def test_there_are_stories_of_two_faults_and_healthy_jobs_for_each_framework() -> None:
    stories = [pair for pair in ALL if pair.is_story]
    # TensorFlow has pairs of single faults.
    in_python = set(pairs.WORDS) - set(pairs.ENDINGS) - {"tensorflow"}
    assert {pair.framework for pair in stories} == in_python
    assert {name.split("_")[-1] for name in pairs.healthy()} == in_python


def test_what_is_shown_when_nothing_is_asked_for_is_there() -> None:
    there = {(pair.name, pair.framework) for pair in ALL}
    assert set(pairs.CURATED) <= there


def test_a_fault_that_does_not_show_at_once_has_its_time_and_the_first_ones_are_short() -> None:
    slow = pairs.named("memory_growth", "torch")
    assert slow.seconds > pairs.SECONDS
    said = {slow.text(side).count("# 18 show it") for side in pairs.SIDES}
    assert said == {1}
    assert {pairs.named(*one).seconds for one in pairs.CURATED} == {pairs.SECONDS}


def test_a_pair_is_found_by_its_name_and_framework() -> None:
    assert pairs.named("input_starved", "torch", ALL).framework == "torch"
    assert pairs.named("input_starved", "jax", ALL).framework == "jax"


def test_of_two_frameworks_the_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "installed", lambda framework: framework == "torch")
    assert pairs.named("gc_pauses", None, ALL).framework == "torch"


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(UsageProblem) as raised:
        pairs.named("input_starvd", None, ALL)
    assert raised.value.next_step.startswith("Did you mean: monitor demo input_starved")


def test_a_name_that_is_like_none_is_answered_with_the_list() -> None:
    with pytest.raises(UsageProblem) as raised:
        pairs.named("xyz", None, ALL)
    assert raised.value.next_step == "List them: monitor demo --list"


def test_a_framework_that_a_fault_has_no_demo_for() -> None:
    with pytest.raises(UsageProblem) as raised:
        pairs.named("retracing", "torch", ALL)
    assert "retracing for PyTorch" in raised.value.what
    assert raised.value.next_step == "Type: monitor demo retracing --framework jax"


def test_half_a_pair_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "input_starved"
    folder.mkdir()
    (folder / "before_jax.py").write_text('"""Train."""\n')
    assert pairs.all_pairs(tmp_path) == []
    (folder / "fix_jax.diff").write_text('@@ -1 +1,2 @@\n """Train."""\n+fast = True\n')
    (pair,) = pairs.all_pairs(tmp_path)
    assert pair.about == "Train."
    assert pair.text("after") == '"""Train."""\nfast = True\n'


def test_demos_that_are_not_installed_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "find_spec", lambda _name: None)
    with pytest.raises(Problem) as raised:
        pairs.folder()
    assert to_install("demo") in raised.value.next_step


TITLES = {name: rule.title for name, rule in rules.load().items()}


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_list_describes_each_fault_in_a_whole_sentence(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = demo_list.listing(ALL, TITLES)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "..." not in text
    assert "…" not in text
    words = " ".join(text.split())
    for pair in ALL:
        # Beside it the names are between the lines of a sentence only where it is wrapped.
        assert pair.name in words
    if width == 120:
        for pair in ALL:
            for fault in pair.faults:
                assert TITLES[fault] in words


def test_a_demo_that_lost_its_rule_is_listed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "tiny_work" in demo_list.listing(ALL, {})

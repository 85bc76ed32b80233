"""Samples of the main thread: what belongs to the steps, and how sure a share of them is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.sampling import start_up, step_samples

SCRIPT = """\
import torch


def batch():
    return torch.zeros(9)


def train():
    model = build()
    for _ in range(9):
        step(model, batch())


if __name__ == "__main__":
    train()
"""
IMPORT, MADE, BUILT, STEP, CALLED = 1, 5, 9, 11, 15


def seen(folder: Path, text: str, shares: dict[int, float]) -> tuple[SourceLine, ...]:
    """Return samples of the lines of a program."""
    file = folder / "train.py"
    file.write_text(text)
    return tuple(SourceLine(str(file), line, "", share) for line, share in shares.items())


def numbers(lines: frozenset[SourceLine]) -> set[int]:
    return {each.line for each in lines}


def anywhere(_: SourceLine) -> bool:
    return True


def test_imports_and_what_is_built_before_the_loop_are_no_step(tmp_path: Path) -> None:
    lines = seen(tmp_path, SCRIPT, {IMPORT: 0.1, BUILT: 0.1, MADE: 0.3, STEP: 0.5})
    assert numbers(start_up(lines)) == {IMPORT, BUILT}


def test_a_line_that_holds_the_whole_training_stays(tmp_path: Path) -> None:
    text = "import torch\nfor part in parts:\n    add(part)\ntrainer.fit(model)\n"
    lines = seen(tmp_path, text, {1: 0.1, 3: 0.1, 4: 0.8})
    assert numbers(start_up(lines)) == {1}


def test_a_training_in_one_line_after_a_longer_loop_stays(tmp_path: Path) -> None:
    text = "for file in files:\n    rows.append(parse(file))\ntrainer.fit(rows)\n"
    assert not start_up(seen(tmp_path, text, {2: 0.6, 3: 0.4}))


def test_a_line_with_an_import_and_a_training_is_no_import(tmp_path: Path) -> None:
    lines = seen(tmp_path, "import trainer; trainer.fit()\n", {1: 1.0})
    assert not start_up(lines)


def test_only_what_stands_before_the_last_loop_is_start_up(tmp_path: Path) -> None:
    text = "a()\nfor x in xs:\n    b(x)\nfit()\nfor x in xs:\n    c(x)\n"
    # The last loop in which anything was seen is the first one: ``fit`` comes after it.
    assert numbers(start_up(seen(tmp_path, text, {1: 0.1, 3: 0.5, 4: 0.4}))) == {1}
    # It is shorter than what stands before it.
    other = seen(tmp_path, text, {1: 0.1, 3: 0.3, 4: 0.4, 6: 0.2})
    assert not start_up(other)


def test_where_the_steps_are_known_by_time_only_imports_are_left_out(tmp_path: Path) -> None:
    lines = seen(tmp_path, SCRIPT, {IMPORT: 0.1, BUILT: 0.1, STEP: 0.8})
    steps = step_samples(Recorded(lines=lines, warm_s=5.0))
    assert {each.line for each in steps.lines} == {BUILT, STEP}


def test_what_start_up_did_in_libraries_is_no_part_of_a_step(tmp_path: Path) -> None:
    lines = seen(tmp_path, SCRIPT, {BUILT: 0.45, STEP: 0.55})
    leaves = (
        SourceLine("/lib/h5py/files.py", 1, "", 0.45),
        SourceLine("/lib/torch/nn.py", 1, "", 0.55),
    )
    steps = step_samples(Recorded(lines=lines, leaves=leaves))
    assert steps.at_leaves(lambda leaf: "h5py" in leaf.file) == pytest.approx(0.0)
    # It is not known which of the samples were start-up: what exceeds its share is not.
    assert steps.at_leaves(anywhere) == pytest.approx(1.0)


def test_a_sample_of_the_users_own_line_is_no_start_up(tmp_path: Path) -> None:
    lines = seen(tmp_path, SCRIPT, {BUILT: 0.4, STEP: 0.6})
    own = SourceLine(lines[1].file, STEP, "train", 0.3)
    steps = step_samples(Recorded(lines=lines, leaves=(own,)))
    assert steps.at_leaves(anywhere) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "f(1) + " * 1200 + "1\n",
        "def f(x):\n    if x == 0:\n        pass\n"
        + "".join(f"    elif x == {n}:\n        pass\n" for n in range(1, 900)),
    ],
)
def test_code_that_is_nested_deep_is_read_all_the_same(tmp_path: Path, text: str) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n" + text + "for x in xs:\n    step(x)\n")
    last = text.count("\n") + 3
    lines = (SourceLine(str(file), 1, "", 0.2), SourceLine(str(file), last, "", 0.8))
    # In a thread of its own: where a browser was driven, ours is deep in that already.
    with ThreadPoolExecutor(1) as pool:
        assert numbers(pool.submit(start_up, lines).result()) == {1}


@pytest.mark.parametrize(
    "call",
    [
        "for _ in range(9):\n    train()\n",
        "train()\ntrain()\n",
        "run(train)\nagain(train)\n",
        "class Runner:\n    def go(self):\n        train()\n",
    ],
)
def test_a_function_that_may_run_often_is_no_start_up(tmp_path: Path, call: str) -> None:
    text = "def train():\n    build()\n    for x in xs:\n        step(x)\n\n\n" + call
    assert not start_up(seen(tmp_path, text, {2: 0.1, 4: 0.9}))


def test_shares_are_given_of_the_steps(tmp_path: Path) -> None:
    lines = seen(tmp_path, SCRIPT, {IMPORT: 0.15, BUILT: 0.05, MADE: 0.2, STEP: 0.6})
    steps = step_samples(Recorded(lines=lines, leaves=lines[2:], looks=100))
    assert {each.line: each.share for each in steps.lines} == pytest.approx(
        {MADE: 0.25, STEP: 0.75}
    )
    assert [each.share for each in steps.leaves] == pytest.approx([0.25, 0.75])
    assert steps.one == pytest.approx(1 / 80)


def test_without_the_source_all_samples_count() -> None:
    lines = (
        SourceLine("/gone/train.py", 1, "<module>", 0.5),
        SourceLine("/gone/train.py", 9, "train", 0.5),
    )
    assert step_samples(Recorded(lines=lines)).lines == lines


def test_few_samples_are_less_sure_than_many() -> None:
    few, many = (step_samples(Recorded(looks=number)).error(0.5) for number in (50, 5000))
    assert few == pytest.approx(10 * many)
    assert few == pytest.approx(2 * (0.25 / 50) ** 0.5)
    assert step_samples(Recorded(looks=50)).error(1.0) == 0.0


def test_the_rarest_line_is_at_least_one_look() -> None:
    lines = (SourceLine("/a.py", 1, "", 0.99), SourceLine("/a.py", 2, "", 0.01))
    assert step_samples(Recorded(lines=lines)).one == 0.01

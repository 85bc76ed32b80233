"""The gate: slower beyond noise, new faults, what is not known, and repeated runs."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.compare.sides import noisy, pace, recorded
from tests.rules.windows import recorded as recorded_window
from tests.rules.windows import stacks, window
from whyidle.monitor.compare import baseline, of_window
from whyidle.monitor.compare.gate import NO_STEPS, VARIES, Outcome, as_json, judge
from whyidle.monitor.compare.sides import Side
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.runs.stacks import CodeLine

STEPS = {m.JOB_STEPS: 25.0, m.JOB_STEP_P50: 0.04}
FED, STARVED = {**STEPS, m.JOB_LOADER_WAIT: 0.0}, {**STEPS, m.JOB_LOADER_WAIT: 0.5}


def run(ms: float, seed: int = 1, **more: object) -> Side:
    return recorded(noisy(ms, seed=seed), FED, **more)  # type: ignore[arg-type]


def test_a_program_that_is_as_fast_as_it_was_passes() -> None:
    gate = judge([run(40.0)], [run(40.2, seed=2)])
    assert gate.outcome is Outcome.PASSED
    assert (gate.is_slower, gate.new, gate.why_unknown) == (False, (), None)


def test_slower_beyond_noise_fails() -> None:
    gate = judge([run(40.0)], [run(48.0, seed=2)])
    assert gate.outcome is Outcome.WORSE
    assert gate.is_slower


def test_so_much_may_be_allowed() -> None:
    assert judge([run(40.0)], [run(48.0)], allowed=25.0).outcome is Outcome.PASSED


def test_faster_is_never_worse() -> None:
    assert judge([run(48.0)], [run(40.0)]).outcome is Outcome.PASSED


def test_a_new_finding_fails_whatever_the_steps_say() -> None:
    gate = judge([run(40.0)], [recorded(noisy(40.0), STARVED)])
    assert gate.outcome is Outcome.WORSE
    assert not gate.is_slower
    assert [fault.rule for fault in gate.new] == ["input_starved"]
    answer = as_json(gate, "main", [7])
    assert [fault.rule for fault in answer.findings_new] == ["input_starved"]
    assert (answer.outcome, answer.run) == ("worse", 7)


def test_a_finding_that_was_there_before_passes() -> None:
    starved = recorded(noisy(40.0), STARVED)
    assert judge([starved], [recorded(noisy(40.0, seed=2), STARVED)]).outcome is Outcome.PASSED


def test_a_finding_that_was_too_slight_to_count_and_no_longer_is_fails() -> None:
    slight = recorded(noisy(40.0), {**STEPS, m.JOB_LOADER_WAIT: 0.03})
    gate = judge([slight], [recorded(noisy(40.0), STARVED)])
    assert [fault.rule for fault in gate.new] == ["input_starved"]


def test_what_is_not_known_does_not_pass() -> None:
    gate = judge([run(40.0)], [recorded(None, {m.JOB_LOADER_WAIT: 0.0})])
    assert gate.outcome is Outcome.NOT_JUDGED
    assert gate.why_unknown
    assert gate.why_unknown != NO_STEPS


def test_the_pace_of_another_gpu_is_no_reason_to_fail() -> None:
    ours = run(40.0, watts=[100.0], gpu="NVIDIA H100")
    theirs = run(80.0, watts=[100.0], gpu="Tesla T4")
    gate = judge([ours], [theirs])
    assert gate.outcome is Outcome.NOT_JUDGED
    assert gate.why_unknown == "not the same GPU: NVIDIA H100 and Tesla T4"


def test_of_several_runs_the_middle_one_speaks() -> None:
    runs = [run(48.0, 1), run(40.0, 2), run(47.0, 3)]
    gate = judge([run(40.0)], runs)
    assert gate.is_slower
    assert gate.speaks == 2
    assert gate.speedups == pytest.approx((40 / 48, 1.0), rel=0.02)
    # One bad run of three is chance.
    assert judge([run(40.0)], [run(48.0, 1), run(40.0, 2), run(40.1, 3)]).outcome is Outcome.PASSED


def test_a_baseline_that_varies_as_much_tells_nothing() -> None:
    gate = judge([run(40.0), run(40.2, 2), run(49.0, 3)], [run(48.0, 4)])
    assert gate.outcome is Outcome.NOT_JUDGED
    assert gate.why_unknown == VARIES


def test_a_finding_of_one_run_of_three_is_chance() -> None:
    runs = [recorded(noisy(40.0), STARVED), run(40.1, 2), run(40.2, 3)]
    assert judge([run(40.0)], runs).new == ()


def test_too_few_steps_tell_nothing() -> None:
    few = recorded(pace(40.0, 41.0), FED)
    assert judge([few], [recorded(pace(60.0, 61.0), FED)]).outcome is Outcome.NOT_JUDGED


def busy(ms: float, *lines: tuple[str, int, str, float]) -> Side:
    """A run that was sampled at these lines so often."""
    rows = [(CodeLine(file, line, function), (), n) for file, line, function, n in lines]
    return replace(run(ms), window=window(means=FED, stacks=stacks(*rows)))


def test_the_function_that_takes_more_is_named_though_its_lines_moved() -> None:
    before = busy(40.0, ("/old/train.py", 10, "load", 10), ("/old/train.py", 30, "main", 90))
    after = busy(80.0, ("/new/train.py", 17, "load", 55), ("/new/train.py", 37, "main", 45))
    grown = judge([before], [after]).grown
    assert grown is not None
    assert grown.line == ("/new/train.py", 17, "load")
    assert (grown.before_ns, grown.after_ns) == pytest.approx((4e6, 44e6), rel=0.02)
    # Where the added time is spread over all of them, none is named.
    rows = [("/new/train.py", line, f"part{line}", 20) for line in (20, 40, 60, 80, 99)]
    found = judge([before], [busy(80.0, *rows)])
    assert found.is_slower
    assert found.grown is None


def test_one_run_says_nothing_of_how_much_a_program_varies() -> None:
    one, more = [run(40.0)], [run(40.0, seed) for seed in (1, 2, 3)]
    slower = [run(42.4, seed) for seed in (4, 5, 6)]
    assert judge(one, slower[:1]).outcome is Outcome.PASSED
    assert judge(more, slower[:1]).outcome is Outcome.PASSED
    assert judge(more, slower).is_slower
    assert judge(one, slower[:1], allowed=3.0).is_slower


# Files -------------------------------------------------------------------------------------------
def test_a_baseline_comes_back_as_it_was(tmp_path: Path) -> None:
    side = of_window(recorded_window("input_starved/before_torch"), "run 3 (good)")
    path = baseline.path_of("main", tmp_path / "deep")
    baseline.save(path, [side, run(40.0)])
    kept = baseline.load("main", tmp_path / "deep")
    assert [each.label for each in kept.sides] == ["run 3 (good)", "run 1"]
    again = kept.sides[0]
    assert again.pace == side.pace
    assert kept.sides[1].pace == run(40.0).pace
    assert kept.sides[1].memory == run(40.0).memory
    found = [f.rule.id for f in diagnose(again.window).findings]
    assert found == [f.rule.id for f in diagnose(side.window).findings]
    assert baseline.names(tmp_path / "deep") == ["main"]
    # As a file of its own, elsewhere.
    assert baseline.load(str(path), tmp_path).sides[0].pace == side.pace
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", b"\x1f\x8b\x08\x00", b"{}", "cut", "damaged", "deep", "another version"],
    ids=repr,
)
def test_a_file_that_is_no_baseline_is_a_sentence(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "main.json.gz"
    if content == "cut":
        baseline.save(path, [run(40.0)])
        content = path.read_bytes()[:-40]
    if content == "damaged":
        baseline.save(path, [run(40.0)])
        whole = path.read_bytes()
        content = whole[:100] + b"\xaa" * 60 + whole[160:]
    if content == "deep":
        content = gzip.compress(b"[" * 100_000)
    if content == "another version":
        baseline.save(path, [run(40.0)])
        text = gzip.decompress(path.read_bytes())
        content = gzip.compress(text.replace(b'"schema":1', b'"schema":2', 1))
    assert isinstance(content, bytes)
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"main\.json\.gz") as caught:
        baseline.load(str(path), tmp_path)
    assert type(caught.value).__name__ in {"UsageProblem", "StorageProblem"}
    assert cast(Problem, caught.value).next_step


def test_a_pipe_is_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "main.json.gz"
    os.mkfifo(path)
    with pytest.raises(UsageProblem, match="is no baseline"):
        baseline.load(str(path), tmp_path)


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "a\nb", "./", "/"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageProblem):
        baseline.path_of(name, tmp_path)

"""The bench of faults: each family has its places, each fault makes a program that parses."""

from __future__ import annotations

import ast
import json
import math
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.faultbench import fit, truth
from benchmarks.faultbench.__main__ import main
from benchmarks.faultbench.cases import HEALTHY, Case, cases, due, sample
from benchmarks.faultbench.check_family import mistakes
from benchmarks.faultbench.jobs import Failed
from benchmarks.faultbench.judge import judged
from benchmarks.faultbench.mutations import MUTATIONS, Insert, Mutation
from benchmarks.faultbench.program import MARK, NotApplicable, Program, families
from benchmarks.faultbench.recordings import NAME
from benchmarks.faultbench.report import each_of, of_rows
from benchmarks.faultbench.truth import compared, is_fault, is_harmless, is_settled, own
from whyidle.monitor import rules

FOLDER = Path(fit.__file__).parent
RECORDINGS = FOLDER / "recordings"
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
    faults = {mutation.name for mutation in MUTATIONS if not mutation.cures}
    assert faults - placed.keys() <= {"not_donated"}
    named = {
        name for each in MUTATIONS for name in (*each.faults, *([each.cures] if each.cures else ()))
    }
    assert named <= rules.load().keys()


def test_what_a_healthy_program_has_too_is_right_first_where_its_cure_gives_more() -> None:
    case = next(case for case in cases(["flax_nnx_mlp"]) if case.fault == "nans_left_on")
    ((rule, cured),) = case.cured
    assert (
        cured.program().environment.items()
        >= next(m for m in MUTATIONS if m.cures).environment.items()
    )
    # The mutant is the faster of the two.
    assert own(case, {cured.id: {"gain": [0.5, 0.8, 1.0]}}) == {rule: [1.0, 1.25, 2.0]}
    assert own(case, {}) == {}


def test_cases_are_drawn_by_their_names_alone() -> None:
    assert list(cases()) == list(cases())
    one = families()[0]
    assert list(cases([one])) == [case for case in cases() if case.family == one]


def test_a_sample_takes_families_in_turn_and_grows() -> None:
    every = list(cases())
    small, large = sample(every, len(families())), sample(every, 3 * len(families()))
    assert Counter(case.family for case in small) == Counter(families())
    assert large[: len(small)] == small
    assert len({case.id for case in large}) == len(large)


def test_what_is_due_is_of_the_family_of_which_least_is_known() -> None:
    some = [Case(family, fault, scale, 35) for family in "ab"
            for fault, scale in [(HEALTHY, 1), ("x", 1), ("y", 4), ("z", 1), ("v", 1)]]  # fmt: skip
    known = {"a.x.x1", "a.z.x1", "b.y.x4"}
    assert {case.id for case in due(some, known, 8)} == {"b.x.x1", "b.z.x1", "b.v.x1"}
    assert due(some, known, 2) == due(some, known, 8)[:2]
    known |= {"b.x.x1", "b.z.x1", "b.v.x1"}
    assert [case.family for case in due(some, known, 8)] == ["a"]
    assert due(some, {case.id for case in some}, 8) == []


class Stepping:
    """A program that makes a step of eight samples each so many seconds of a clock."""

    is_running = True

    def __init__(self, step_s: float) -> None:
        self.now, self.step_s = 0.0, step_s
        self.sent: list[int] = []

    def counted(self) -> tuple[int, int]:
        steps = int(self.now / self.step_s)
        return steps, 8 * steps

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def send(self, sign: int) -> None:
        self.sent.append(sign)

    def check(self) -> None: ...


def turned(monkeypatch: pytest.MonkeyPatch, step_s: float) -> tuple[Stepping, truth.Rate]:
    """Give a program of such steps its turn; return what it saw, and its rate."""
    job = Stepping(step_s)
    monkeypatch.setattr(truth.time, "sleep", job.sleep)
    monkeypatch.setattr(truth.time, "monotonic", lambda: job.now)
    return job, truth._turn(job)  # type: ignore[arg-type]


@pytest.mark.parametrize("step_s", [0.0005, 0.003, 0.11, 0.73])
def test_a_turn_counts_whole_steps(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    job, (samples, steps) = turned(monkeypatch, step_s)
    assert steps == pytest.approx(1 / step_s, rel=0.015)
    assert samples == pytest.approx(8 * steps)
    assert job.sent == [signal.SIGCONT, signal.SIGSTOP]


def test_a_program_that_makes_no_step_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    job, rate = turned(monkeypatch, 100)
    assert rate == (0, 0)
    assert job.now == pytest.approx(truth.LONGEST_TURN_S, abs=0.5)


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
    row["is_healthy"] = False
    fault = {
        "right_first": True, "right_anywhere": True, "right_line": False, "py_spy_line": True,
        "promised": [1.1, 1.3], "covered": True, "width": 1.18, "interval_score": 0.2,
        "first_s": 12,
    }  # fmt: skip
    missed = {**fault, "right_first": False, "promised": None, "covered": None, "first_s": None}
    healthy = {"is_fault": False, "is_healthy": True, "loud_false": ["gc_pauses"], "unknown": 0.1}
    unclear = healthy | {"is_healthy": False, "unknown": None}
    found = of_rows([row | fault, row | missed, row | healthy, row | unclear])
    assert (found["cases"], found["healthy"], found["right_first"]) == (2, 1, 0.5)
    assert found["unclear"] == 1
    assert (found["loud_false"], found["coverage"], found["median_width"]) == (1, 1, 1.18)
    assert found["unknown_over_15"] == pytest.approx(2 / 3, abs=1e-3)
    assert found["seconds_to_finding"] == 12


def test_the_report_names_each_miss() -> None:
    row = {"side": "tune", "family": "a", "unknown": None, "unharmed": True, "gain": [1.9, 2, 2.1]}
    row |= {"fault": "sleeps", "is_fault": True, "right_anywhere": True, "py_spy_line": False}
    row |= {"width": None, "interval_score": None, "first_s": None}
    found = [["gc_pauses", "low", [1.1, 1.2]], ["host_code", "info", [1, 2]]]
    second = {"case": "second", "right_first": False, "right_line": False, "promised": None}
    narrow = {"case": "narrow", "right_first": True, "right_line": True, "promised": [1.1, 1.2]}
    narrow |= {"width": 1.1, "interval_score": 0.1}
    elsewhere = narrow | {"case": "elsewhere", "right_line": False, "covered": True}
    row["is_healthy"] = False
    healthy = {
        "case": "alarm",
        "is_fault": False,
        "is_healthy": True,
        "fault": "healthy",
        "loud_false": ["gc_pauses"],
    }
    text = each_of([
        row | second | {"covered": None, "found": found},
        row | narrow | {"covered": False, "found": found},
        row | elsewhere | {"found": found},
        row | healthy | {"found": found},
    ])  # fmt: skip
    assert "- second (costs 2.00x): `gc_pauses` (low) first, the right one later" in text
    assert "- narrow: 1.10-1.20x promised, costs 2.00x" in text
    assert "- elsewhere: `gc_pauses` (low), at another line" in text
    assert "- alarm: healthy, yet `gc_pauses` loud" in text
    assert "| a (tune) | 3 | 1 | 0 | 67% |" in text


def test_a_case_knows_its_twin() -> None:
    case = Case("a", "sleeps", 0.25, 35)
    assert (case.id, case.twin) == ("a.sleeps.x0.25", "a.healthy.x0.25")


def test_a_pause_of_the_machine_moves_no_gain() -> None:
    rates = [80.0, 80.8, 79.2] * 3
    assert _compared(*rates)["gain"][1] == pytest.approx(1.25)
    rates[4] = 2.0
    low, middle, high = _compared(*rates)["gain"]
    assert (low, middle) == (pytest.approx(100 / 80.8, abs=1e-4), pytest.approx(1.25))
    assert high == pytest.approx(50)
    assert _compared(*rates, *rates[5:])["gain"][2] < 1.3


def _compared(*rates: float) -> dict[str, Any]:
    return compared([((100.0, 1.0), (rate, rate / 100)) for rate in rates])


def test_a_gain_that_is_not_known_well_is_neither_fault_nor_healthy() -> None:
    few = _compared(50, 50, 50)
    assert "failed" in few
    assert not is_settled(few)
    assert is_fault((1.01, 1.1, 1.2))
    assert is_harmless((0.97, 1.0, 1.04))
    assert not is_harmless((0.8, 1.0, 1.3))
    assert not is_settled({"gain": [0.8, 1.0, 1.3]})


def played(
    monkeypatch: pytest.MonkeyPatch,
    speeds: Mapping[str, tuple[float, float]],
    ends: Sequence[tuple[str, int]] = (),
    seed: int = 0,
    noise: float = 0.01,
) -> tuple[list[list[str]], dict[str, Any]]:
    """Measure programs of known speed in each start; some end amid a start.

    Returns which were started together, and what was found.
    """
    started: list[list[str]] = []

    class Played:
        def __init__(self, case: Case, *, counting: bool) -> None:
            assert counting
            if case.fault == HEALTHY:
                started.append([])
            started[-1].append(case.fault)
            self.turns, self.ends = 0, (case.fault, len(started)) in ends
            self.speed = speeds[case.fault][len(started) - 1]
            self.drawn = random.Random(f"{seed} {case.fault} {len(started)}")

        def turn(self, _least_s: float) -> tuple[float, float]:
            self.turns += 1
            if self.ends and self.turns > 3:
                raise Failed("ended")
            return self.speed * self.drawn.gauss(1, noise), 1.0

        def end(self) -> None: ...

    monkeypatch.setattr(truth, "Job", Played)
    monkeypatch.setattr(truth, "_warm", lambda _job: None)
    monkeypatch.setattr(truth, "_turn", Played.turn)
    found = truth.measured([Case("a", fault, 1, 35) for fault in speeds])
    return started, {name.split(".")[1]: each for name, each in found.items()}


SPEEDS: Final = {"healthy": (1, 1), "large": (0.5, 0.5), "steady": (0.92, 0.92), "once": (0.92, 1)}


def test_only_what_costs_more_than_two_starts_differ_by_is_known_after_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, found = played(monkeypatch, SPEEDS)
    assert started == [list(SPEEDS), ["healthy", "steady", "once"]]
    assert {fault: is_fault(each["gain"]) for fault, each in found.items()} == {
        "large": True, "steady": True, "once": False,
    }  # fmt: skip
    low, middle, high = found["once"]["gain"]
    first, second = found["once"]["starts"]
    assert (low, high) == (second[0], first[2])
    assert second[1] < middle < first[1]


@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize(
    ("speeds", "least", "most"),
    [((1, 1), 0, 0.01), ((0.92, 1), 0, 0.02), ((1, 0.92), 0, 0.02), ((0.9, 0.9), 0.95, 1)],
    ids=["healthy", "slower in the first start", "slower in the second", "slower by a tenth"],
)
def test_a_start_of_a_healthy_program_that_is_slow_is_seldom_called_a_fault(
    monkeypatch: pytest.MonkeyPatch,
    speeds: tuple[float, float],
    least: float,
    most: float,
    noise: float,
) -> None:
    programs = {HEALTHY: (1.0, 1.0)} | {f"{number}": speeds for number in range(8)}
    called = [
        is_fault(each["gain"])
        for seed in range(125)
        for each in played(monkeypatch, programs, seed=seed, noise=noise)[1].values()
    ]
    assert len(called) == 1000
    assert least <= sum(called) / len(called) <= most


@pytest.mark.parametrize(("start", "known"), [(1, set()), (2, {"large"})])
def test_a_healthy_twin_that_fails_leaves_its_mutants_unmeasured(
    monkeypatch: pytest.MonkeyPatch, start: int, known: set[str]
) -> None:
    """A mutant that fails by itself is known to."""
    speeds = SPEEDS | {"broken": (1, 1)}
    _, found = played(monkeypatch, speeds, [("healthy", start), ("broken", 1)])
    assert {fault for fault, each in found.items() if "gain" in each} == known
    assert {fault for fault, each in found.items() if "failed" in each} == {"healthy", "broken"}


def test_what_is_behind_a_range_comes_from_the_tune_side_and_from_pairs() -> None:
    row: dict[str, Any] = {
        "side": "tune", "is_fault": True, "right_anywhere": True, "right": ["gc_pauses"],
        "found": [["host_code", "high", [1.5, 2.0]], ["gc_pauses", "low", [1.25, 2.0]]],
        "gain": [1.4, 1.6, 1.9],
    }  # fmt: skip
    found = {"rule": "gc_pauses", "speedup": [1.1, 1.2]}
    pair = {"rule": "gc_pauses", "measured": 1.2, "before": {"found": [found]}}
    elsewhere = [row | {"side": "heldout"}, row | {"right_anywhere": False}]
    known = fit.behind([row, *elsewhere], [pair, pair | {"measured": None}])
    assert known["gc_pauses"].number == 2
    assert known["gc_pauses"].inside == 1
    assert known["gc_pauses"].parts == [pytest.approx(0.375 / 0.5)]
    assert "fewer than three" in fit.table(known)


def test_the_expected_gain_is_near_the_best_point_of_the_ranges_on_both_sides() -> None:
    rows = fit.judged()
    for side in ("tune", "heldout"):
        some = fit.sure(rows, side)
        errors = {
            point: sum(fit.off(*one, point) for one in some) / len(some) for point in fit.POINTS
        }
        # Of the logarithm, as is the best.
        assert errors[0.5] <= min(errors.values()) + 0.03
        gain, _ = some[0]
        middle = math.log(1 / (1 - gain.expected))
        assert fit.off(gain, math.exp(middle), 0.5) == pytest.approx(0.0, abs=1e-9)


def recorded(most: int) -> list[Case]:
    """Return some of the recorded cases, of each family in turn."""
    there = {path.name.removesuffix(".tar.xz") for path in RECORDINGS.glob("*[0-9].tar.xz")}
    return sample([case for case in cases() if case.id in there], most)


@pytest.mark.parametrize("case", recorded(6), ids=lambda case: case.id)
def test_the_published_results_are_what_the_rules_say_of_the_recordings(case: Case) -> None:
    results = json.loads((FOLDER / "results.json").read_text())["cases"]
    truths = json.loads((FOLDER / "truth.json").read_text())
    healthy = {"gain": [1.0, 1.0, 1.0]}
    truth = truths.get(case.id, healthy) if case.fault != HEALTHY else healthy
    row = judged(case, RECORDINGS / NAME.format(case.id), truth, own(case, truths))
    published = next(row for row in results if row["case"] == case.id)
    assert json.loads(json.dumps(row)) == published, "type: python -m benchmarks.faultbench judge"


def test_a_family_that_is_not_there_ends_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["faultbench", "judge", "--family", "char_gtp"])
    with pytest.raises(SystemExit, match="char_gpt"):
        main()

"""The Compare page says what the terminal says; better and worse, predicted and measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.compare.sides import answer, kernel, noisy, pace, recorded, traced
from tests.rules.windows import recorded as window_of
from whyidle.dashboard.views import comparison
from whyidle.dashboard.views.comparison import Compared
from whyidle.monitor.compare import Side, compare, of_window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render.comparison import screen

MS = 10**6


def starved(took: Any, label: str = "run 1 (before)", **more: Any) -> Side:
    """A side that waits for its loader."""
    parts = {Slice.COMPUTE: 50 * 10**8, Slice.IDLE_INPUT: 50 * 10**8}
    return traced(answer(parts, **more), took, label)


def healthy(took: Any, label: str = "run 2 (after)", **more: Any) -> Side:
    return traced(answer({Slice.COMPUTE: 100 * 10**8}, **more), took, label)


def of(a: Side, b: Side) -> Compared:
    return comparison.of(compare(a, b))


FASTER = of(starved(noisy(20, by="trace")), healthy(noisy(10, by="trace")))
SLOWER = of(healthy(noisy(10, by="trace")), starved(noisy(20, by="trace")))


def test_it_says_what_the_terminal_says() -> None:
    found = compare(starved(noisy(20, by="trace")), healthy(noisy(10, by="trace")))
    terminal, page = " ".join(screen(found).split()), comparison.of(found)
    about = [part for each in page.about for part in each.split("; ")]
    said = [page.verdict, *about, page.why_no_kernels or "", page.why_no_energy or ""]
    said += [f"{row.a} {row.b} {row.change}" for row in page.slices]
    said += [f"{row.a} {row.b} {row.change} {row.name}" for row in page.figures]
    assert [text for text in said if " ".join(text.split()) not in terminal] == []


def test_less_time_is_better_and_more_is_worse() -> None:
    assert (FASTER.is_, SLOWER.is_) == ("better", "worse")
    assert {row.slice: row.is_ for row in FASTER.slices} == {
        Slice.IDLE_INPUT: "better", Slice.COMPUTE: "same",
    }  # fmt: skip
    assert {row.slice: row.is_ for row in SLOWER.slices}[Slice.IDLE_INPUT] == "worse"
    assert FASTER.slices[0].change.startswith("-")
    assert SLOWER.slices[0].change.startswith("+")


def test_what_chance_may_have_done_is_neither() -> None:
    same = of(starved(noisy(20, by="trace")), starved(noisy(20.1, seed=2, by="trace")))
    assert same.is_ == "same"
    assert {row.is_ for row in same.slices} == {"same"}
    unsure = of(recorded(pace(*[10, 30, 12, 33, 11, 35] * 4)), recorded(pace(*[9, 14, 31] * 8)))
    assert unsure.is_ == "unknown"


def test_the_time_of_both_is_to_one_scale() -> None:
    (a, b) = (FASTER.budgets[name] for name in "AB")
    assert not isinstance(a, str)
    assert not isinstance(b, str)
    assert sum(a.values()) == pytest.approx(0.020, rel=0.02)
    assert sum(b.values()) == pytest.approx(0.010, rel=0.02)


def test_a_side_without_steps_says_which_and_why() -> None:
    found = of(starved(None, steps=0), healthy(noisy(10, by="trace")))
    assert "run 1 (before)" in (found.why_no_steps or "")
    assert [each.name for each in found.steps] == ["B: run 2 (after)"]
    assert found.is_ == "unknown"
    assert found.answer.per == "second"


def test_a_side_of_which_nobody_knows_where_its_time_goes_says_so() -> None:
    found = of(recorded(noisy(20)), starved(noisy(20, by="trace")))
    assert isinstance(found.budgets["A"], str)
    assert found.slices[0].seconds is None
    assert {row.is_ for row in found.slices} == {"unknown"}


def test_the_distribution_is_of_the_stretches_that_count() -> None:
    (a, _) = of(recorded(noisy(20)), recorded(noisy(10), label="b")).steps
    # The first two seconds are left out: a job still fills its queues.
    assert 30 < len(a.values) < 40
    assert a.low is not None
    assert a.high is not None
    assert a.low < a.mean < a.high
    assert a.of == f"{20 * len(a.values)} steps in {len(a.values)} intervals"


def test_where_batches_differ_all_is_of_a_sample() -> None:
    found = of(recorded(noisy(20), batch=32.0), recorded(noisy(20), label="b", batch=64.0))
    assert found.answer.per == "sample"
    assert found.steps[0].mean == pytest.approx(0.020 / 32, rel=0.02)
    assert found.steps[1].mean == pytest.approx(0.020 / 64, rel=0.02)


# Predicted and measured --------------------------------------------------------------------------
def fixed(before_ms: float, after_ms: float) -> Compared:
    """The recorded pair of a starved loader, its steps as they would have to be."""
    before, after = (
        replace(of_window(window_of(f"input_starved/{side}_torch"), side), pace=noisy(ms, seed=i))
        for i, (side, ms) in enumerate((("before", before_ms), ("after", after_ms)))
    )
    return of(before, after)


def predicted() -> tuple[float, float]:
    answer = as_json(diagnose(window_of("input_starved/before_torch")))
    low, high = next(f.speedup for f in answer.findings if f.rule == "input_starved")
    return low, high


def test_what_a_finding_promised_stands_beside_what_was_measured() -> None:
    low, high = predicted()
    promise = fixed(40, 40 / ((low + high) / 2)).promise
    assert promise.rules == ("input_starved",)
    assert [each.name for each in promise.ranges] == ["predicted", "measured"]
    assert (promise.ranges[0].low, promise.ranges[0].high) == (low, high)
    assert promise.is_as_predicted is True
    assert promise.words.endswith("as predicted.")


def test_a_fix_that_brought_less_says_so() -> None:
    low, _ = predicted()
    promise = fixed(40, 40 / (0.8 * low)).promise
    assert promise.is_as_predicted is False
    assert promise.words.endswith("less than predicted.")
    _, high = predicted()
    assert fixed(40, 40 / (1.3 * high)).promise.words.endswith("more than predicted.")


def test_where_nothing_is_gone_nothing_was_promised() -> None:
    before = of_window(window_of("input_starved/before_torch"), "a")
    promise = of(before, before).promise
    assert promise.ranges == ()
    assert promise.is_as_predicted is None
    assert comparison.NOTHING_GONE in promise.words


def test_a_promise_that_nobody_could_measure_stays_one() -> None:
    before = of_window(window_of("input_starved/before_torch"), "a")
    after = of_window(window_of("input_starved/after_torch"), "b")
    unsure = of(replace(before, pace=None, sample_ns=None, batch=None), replace(after, batch=None))
    assert [each.name for each in unsure.promise.ranges] == ["predicted"]
    assert "the measured gain is unknown" in unsure.promise.words


# What ran ----------------------------------------------------------------------------------------
def test_kernels_are_better_or_worse_by_what_they_are_of_the_step() -> None:
    ran = [kernel("gemm", 60 * 10**8, 10, 0.6), kernel("tiny", 40 * 10**8, 10, 0.4)]
    then = [kernel("gemm", 20 * 10**8, 10, 0.5), kernel("tiny", 20 * 10**8, 10, 0.5)]
    found = of(
        healthy(noisy(1000, by="trace"), "a", top_kernels=ran),
        healthy(noisy(1000, by="trace"), "b", top_kernels=then),
    )
    assert {row.name: row.is_ for row in found.kernels} == {"gemm": "better", "tiny": "better"}
    assert found.why_no_kernels is None


def test_energy_has_its_unit_and_is_better_when_it_is_less() -> None:
    found = of(recorded(noisy(20), watts=(300.0,)), recorded(noisy(10), label="b", watts=(300.0,)))
    energy = next(row for row in found.figures if row.name == "energy")
    assert energy.is_ == "better"
    assert "J/step" in energy.a
    assert found.why_no_energy is None


def test_a_crowded_machine_is_warned_of() -> None:
    waits = {m.JOB_MAIN_THREAD_WAIT: 0.01}
    found = of(recorded(noisy(20), waits), recorded(noisy(10), {m.JOB_MAIN_THREAD_WAIT: 0.3}, "b"))
    assert any("for a core" in text for text in found.answer.warnings)
    assert found.is_ == "unknown"

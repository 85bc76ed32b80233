"""What a pair came to: predicted, measured, gone; made by hand, so that nothing is run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.record_pairs import kept
from tests.rules.windows import WINDOWS
from whyidle.monitor import compare
from whyidle.monitor.demo.outcome import NO_TIME, NOT_PRINTED, Half, Outcome
from whyidle.monitor.demo.pairs import Pair, named
from whyidle.monitor.demo.watched import Watched
from whyidle.monitor.render import demo
from whyidle.monitor.signals.portable import load


def outcome(name: str, framework: str, **printed: Any) -> Outcome:
    """Return the outcome of a pair whose windows were recorded."""
    pair = named(name, framework)
    halves = [half(pair, side, number, **printed) for number, side in ((7, "before"), (8, "after"))]
    sides = [compare.of_window(each.window) for each in halves]
    return Outcome(pair, halves[0], halves[1], compare.compare(sides[0], sides[1]))


def half(pair: Pair, side: Any, run: int, **printed: Any) -> Half:
    told = kept(WINDOWS / pair.name / f"{side}_{pair.framework}.json.gz") | printed
    watched = Watched(run, pair.script(side), told["step_ms"], told["samples_per_s"])
    return Half(watched, load(told["window"]))


def shown(told: Outcome, width: int = 80) -> str:
    console = Console(width=width, color_system=None, highlight=False)
    return demo.screen(told, console)


STARVED = outcome("input_starved", "torch")


def test_what_was_predicted_is_put_beside_what_was_measured() -> None:
    told = STARVED.as_json()
    assert told["fault"] == "input_starved"
    assert told["before"]["top"] == "input_starved"
    assert told["predicted"] == STARVED.before.findings[0]["speedup"]
    ratio = told["after"]["samples_per_s"] / told["before"]["samples_per_s"]
    assert told["measured"][1] == pytest.approx(ratio, abs=1e-3)
    low, high = told["predicted"]
    assert told["as_predicted"] is (0.97 * low <= ratio <= 1.03 * high)
    assert "input_starved" in told["findings_gone"]


def test_an_end_that_is_not_known_is_null_with_its_reason() -> None:
    told = STARVED.as_json()
    assert told["measured"][0] is None
    assert told["measured_over"] is None
    assert told["unknown"]["measured"]
    assert told["before"]["step_ns"][0] is None
    assert told["before"]["unknown"]["step_ns"]


def test_a_program_that_says_nothing_of_its_pace() -> None:
    told = outcome("input_starved", "torch", step_ms=None, samples_per_s=None)
    assert told.as_json()["measured"] == [None, None, None]
    assert told.unknown["measured"] == NOT_PRINTED
    assert NOT_PRINTED in shown(told)


def test_several_rounds_tell_how_far_the_speedup_varies() -> None:
    def paced(samples_per_s: float) -> Watched:
        return Watched(9, Path("x.py"), 1.0, samples_per_s)

    rounds = ((paced(100), paced(150)), (paced(100), paced(900)))
    told = replace(STARVED, rounds=rounds)
    low, middle, high = told.measured
    assert (low, high) == (1.5, 9.0)
    assert middle == STARVED.speedup
    assert told.measured_over == "the least and the most of 3 rounds"
    assert "measured" not in told.unknown
    assert "--rounds" in shown(STARVED)
    assert "--rounds" not in shown(told)


def test_a_fault_that_costs_no_time_promises_none() -> None:
    told = outcome("memory_growth", "torch")
    assert told.predicted is None
    assert told.unknown["predicted"] == NO_TIME
    assert told.is_as_predicted is None


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in shown(STARVED, width).splitlines()) <= width


def test_the_page_names_the_fault_its_line_the_fix_and_the_gain() -> None:
    page = shown(STARVED, 100)
    assert "HIGH   The device waits for the next batch  [input_starved]" in page
    assert "before_torch.py:" in page
    assert "Fix: Load batches in worker processes" in page
    assert "- loader = DataLoader(" in page
    assert "+ loader = DataLoader(" in page
    assert f"{STARVED.speedup:.2f}x as fast" in page
    assert "predicted" in page
    assert "measured" in page
    assert "gone        input_starved" in page


def test_the_end_tells_what_to_try_and_only_what_there_is() -> None:
    told = demo.closing([STARVED], ["compare"], Path("/state/whyidle.db"))
    assert "Runs 7 to 8 are kept in /state." in told
    assert "monitor compare 7 8 " in told
    assert "dashboard" not in told
    assert told.splitlines()[-1].strip().startswith("monitor attach PID")
    assert "monitor dashboard" in demo.closing([STARVED], ["dashboard"], Path("/state/whyidle.db"))

"""The page: what the verdict says in words, and what is shown of each side."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from tests.compare.sides import answer, noisy, pace, recorded, traced
from whyidle.monitor.compare import Comparison, compare
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.render.comparison import screen


def shown(found: Comparison, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None, highlight=False)
    return screen(found, console=console).splitlines()


STARVED = traced(
    answer({Slice.COMPUTE: 50 * 10**8, Slice.IDLE_INPUT: 50 * 10**8}), noisy(20, by="trace")
)
HEALTHY = traced(answer({Slice.COMPUTE: 100 * 10**8}), noisy(10, by="trace"), "b.json")


def test_what_is_not_certain_does_not_begin_with_no_difference() -> None:
    a, b = pace(*[10, 30, 12, 33, 11, 35] * 4), pace(*[9, 14, 31, 10, 12, 30] * 4)
    first = shown(compare(recorded(a), recorded(b, label="b")))[0]
    assert first.startswith("Perhaps 1.")
    assert "x faster [" in first
    assert "], not certain: step " in first


def test_a_difference_below_what_runs_differ_by_says_that_this_decided() -> None:
    lines = shown(compare(recorded(pace(*[30.0] * 20)), recorded(pace(*[29.5] * 20), label="b")))
    assert lines[0].startswith("No difference of 3% or more: step ")
    assert any(line.startswith("Less than 3% is never called a difference") for line in lines)
    lines = shown(compare(recorded(noisy(30)), recorded(noisy(30), label="b")))
    assert lines[0].startswith("No difference beyond noise: step ")
    assert not any("3%" in line for line in lines)


def test_each_side_shows_its_middle_its_bounds_its_mean_and_its_slow_steps() -> None:
    paused = replace(pace(*([20.0] * 9 + [60.0]) * 4), p95_ns=58e6)
    lines = shown(compare(recorded(paused), recorded(None, label="b")))
    assert "   step: median 20.0 [20.0, 20.0] ms, mean 24.6 ms, p95 58.0 ms" in lines


def test_one_step_is_no_steps() -> None:
    once = recorded(pace(20.0, by="trace"))
    assert any("1 step, those of a trace" in line for line in shown(compare(once, once)))


@pytest.mark.parametrize("width", [40, 80])
def test_the_id_of_a_rule_is_never_cut(width: int) -> None:
    lines = shown(compare(STARVED, HEALTHY), width)
    assert any(line.startswith("gone  HIGH   input_starved: The device") for line in lines)
    assert "batch" in " ".join(lines)
    assert max(map(len, lines)) <= width


def test_energy_without_power_says_so_in_one_line() -> None:
    lines = shown(compare(STARVED, HEALTHY))
    assert lines.count("Energy is not known: no power is read.") == 1
    half = shown(compare(recorded(noisy(20), watts=(100.0,)), recorded(noisy(20), label="b")))
    assert "Energy of B is not known: no power is read." in half


def test_another_gpu_is_named_once() -> None:
    a = recorded(noisy(20), watts=(1.0,))
    b = recorded(noisy(20), watts=(1.0,), gpu="NVIDIA H100", label="b")
    lines = [line for line in shown(compare(a, b)) if "H100" in line]
    assert lines == ["! Not the same GPU: NVIDIA A100 and NVIDIA H100."]

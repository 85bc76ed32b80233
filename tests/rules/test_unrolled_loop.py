"""The rule unrolled_loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, is_silent, recorded, window
from whyidle.monitor.code.loops import loops_in
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.signals.window import Window

NAME = "unrolled_loop"
FIXES = {
    "jax": (
        """
import jax
import jax.numpy as jnp
def cell(params, hidden, x):
    return jnp.tanh(params * hidden + x)
params, hidden, xs = 0.5, jnp.zeros(3), jnp.ones((7, 3))
first = hidden
""",
        """
by_hand = first
for x in xs:
    by_hand = cell(params, by_hand, x)
assert kept.shape == (7, 3) and jnp.allclose(hidden, by_hand, atol=1e-6)
""",
    ),
}
UNROLLED = """\
def network(w, xs):
    h = xs[0]
    for t in range(len(xs)):
        h = tanh(h @ w + xs[t])
    return h


def step(w, xs):
    return w - grad(network)(w, xs)
"""
PROGRAM = {
    "name": "jit_step", "operations": 8000, "whole": True, "loops": 0, "products": {"f32": 200},
}  # fmt: skip


def job(folder: Path, text: str = UNROLLED, seconds: float = 30, **program: Any) -> Window:
    """Return the window of a job that compiled such a program from such a source."""
    file = folder / "train.py"
    file.write_text(text)
    row = Compiled("jax", "step", 1, int(seconds * 1e9), 0, None, str(file), 9)
    facts = {"jax": {"largest_executables": [PROGRAM | program]}}
    return window(facts=facts, compiled=(row,), inside=True)


def test_a_loop_that_is_written_out(tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path))
    assert (finding.where[0].line, finding.where[0].function) == (3, "network")
    # Compiling is no part of a step.
    assert finding.gain is None
    assert 30 in [each.value for each in finding.evidence]


@pytest.mark.parametrize(("seconds", "severity"), [(300, "high"), (30, "medium"), (2, "low")])
def test_it_matters_by_the_wait(tmp_path: Path, seconds: float, severity: str) -> None:
    assert found(NAME, job(tmp_path, seconds=seconds)).severity == severity


def test_on_a_cpu_too_nothing_is_foreseen_of_the_step(tmp_path: Path) -> None:
    whole = job(tmp_path, seconds=30)
    facts = {"jax": {**whole.job.facts["jax"], "backend": "cpu"}}
    finding = found(NAME, replace(whole, job=replace(whole.job, facts=facts)))
    assert finding.gain is None
    assert finding.severity == "medium"


def test_a_scan_is_no_such_loop(tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, loops=2, products={"f32": 6}, operations=284))
    assert is_silent(NAME, job(tmp_path, loops=2))


def test_a_large_program_without_a_loop_in_its_source(tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, "def step(w, xs):\n    return network(w, xs)\n"))


def test_compiling_that_nobody_feels(tmp_path: Path) -> None:
    assert is_silent(NAME, job(tmp_path, seconds=0.5))


def test_a_loop_whose_passes_are_on_their_own_is_another_fault(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def step(w, xs):\n    for x in xs:\n        out.append(f(w, x))\n")
    assert not list(loops_in(str(file), "step"))


def test_what_is_missing(tmp_path: Path) -> None:
    assert cannot_judge(NAME, window())
    whole = job(tmp_path)
    (tmp_path / "train.py").rename(tmp_path / "gone")
    row = Compiled("jax", "step", 1, 30 * 10**9, 0, None, str(tmp_path / "not_there.py"), 9)
    assert cannot_judge(NAME, window(facts=whole.job.facts, compiled=(row,), inside=True))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded("unrolled_loop/before_jax"))
    assert finding.where[0].function == "written_out"
    assert is_silent(NAME, recorded("unrolled_loop/after_jax"))

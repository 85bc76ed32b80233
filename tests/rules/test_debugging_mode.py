"""The rule debugging_mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    names,
    recorded,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.window import Window

NAME = "debugging_mode"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        "import torch\ntorch.autograd.set_detect_anomaly(True)",
        "assert not torch.is_anomaly_enabled()",
    ),
    "jax": (
        "import jax\njax.config.update('jax_debug_nans', True)",
        "assert not jax.config.jax_debug_nans",
    ),
}
OFF = {"debug_nans": False, "debug_infs": False, "disable_jit": False}
ANOMALY = {"torch": {"anomaly_detection": True, "backend": "cpu"}}
CALLS = [
    {"name": "aten::isnan", "count": 500, "total_ns": 10_000_000, "per_step": 50.0},
    {"name": "aten::_is_any_true", "count": 500, "total_ns": 10_000_000, "per_step": 50.0},
]


def checked(kind: str = "cpu") -> Window:
    """Return a window whose trace of 200 ms has a thousand checks."""
    shares = {Slice.COMPUTE: 0.9}
    trace = answer(shares, step_ms=20, kind=kind, calls=None) | {"calls": CALLS}
    return window(trace, facts=ANOMALY, means={m.PROCESS_DEBUG_MODES: 1.0})


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"torch": {"anomaly_detection": True}}, ["torch.autograd.set_detect_anomaly"]),
        ({"jax": {**OFF, "debug_nans": True}}, ["jax_debug_nans"]),
        (
            {"jax": {**OFF, "debug_infs": True, "disable_jit": True}},
            ["jax_debug_infs", "jax_disable_jit"],
        ),
    ],
)
def test_what_is_on_is_named_and_no_gain_is_said(facts: dict[str, object], said: list[str]) -> None:
    finding = found(NAME, window(facts=facts, means={m.PROCESS_DEBUG_MODES: 1.0}))  # type: ignore[arg-type]
    assert finding.gain is None
    assert finding.severity is Severity.MEDIUM
    assert finding.confidence is Confidence.HINTED
    assert [each.value for each in finding.evidence] == said
    assert len(finding.frameworks) == 1


def test_on_a_cpu_the_search_of_jax_for_nan_takes_little() -> None:
    job = window(facts={"jax": {**OFF, "debug_nans": True, "backend": "cpu"}})
    assert found(NAME, job).severity is Severity.LOW


def test_a_trace_shows_what_the_checks_take() -> None:
    finding = found(NAME, checked())
    assert finding.gain is not None
    # 20 ms of checks, and 500 stacks.
    assert finding.gain.low == pytest.approx(0.1 + 500 * 35e-6 / 0.2)
    assert finding.gain.high == pytest.approx(0.1 + 500 * 135e-6 / 0.2)
    assert finding.confidence is Confidence.INFERRED


def test_on_a_gpu_a_check_waits_for_work_that_is_not_lost() -> None:
    assert found(NAME, checked("gpu")).gain is None


@pytest.mark.parametrize(("share", "severity"), [(0.3, Severity.LOW), (1.0, Severity.MEDIUM)])
def test_a_profiler_that_never_ends_was_forgotten(share: float, severity: Severity) -> None:
    facts = {"torch": {"anomaly_detection": False, "own_profiler": True}}
    job = window(facts=facts, means={m.PROCESS_DEBUG_MODES: share})
    assert found(NAME, job).severity is severity


def test_what_was_on_for_a_few_steps_is_no_fault() -> None:
    assert is_silent(NAME, window(facts=ANOMALY, means={m.PROCESS_DEBUG_MODES: 0.02}))


@pytest.mark.parametrize(
    "facts",
    [
        {"torch": {"anomaly_detection": False}},
        {"jax": {**OFF, "enable_x64": True, "log_compiles": False}},
    ],
)
def test_jobs_without_such_a_mode(facts: dict[str, object]) -> None:
    assert is_silent(NAME, window(facts=facts, means={m.PROCESS_DEBUG_MODES: 0.0}))  # type: ignore[arg-type]


def test_nobody_is_inside() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, traced("h100_qwen05b"))


def test_the_line_that_switches_it_on(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n# detect_anomaly(\ntorch.autograd.set_detect_anomaly(True)\n")
    lines = (SourceLine(str(file), 1, "<module>", 0.9),)
    where = found(NAME, window(facts=ANOMALY, lines=lines)).where
    assert [(each.line, each.function) for each in where] == [(3, "<module>")]


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert finding.gain is not None
    assert names(finding.where) == ["train"]
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))

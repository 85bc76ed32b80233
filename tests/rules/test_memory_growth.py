"""The rule memory_growth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import SeenGpu, Trend

NAME = "memory_growth"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import torch
total, loss = torch.zeros(()), (torch.ones(3, requires_grad=True) * 2).sum()
""",
        "assert total.item() == 6 and total.grad_fn is None",
    ),
    "jax": (
        """
import jax.numpy as jnp
history, outputs = [], jnp.ones((4, 4))
""",
        "assert history[0].shape == ()",
    ),
    "flux": ("history, outputs = Float64[], ones(4, 4)", "@assert history == [1.0]"),
}
LEAK = Trend(1e9, 4e9, 50e6, 1.0)


def test_memory_that_rises_to_the_end() -> None:
    finding = found(NAME, window(trends={m.JOB_RSS: LEAK}, means={m.JOB_STEPS: 10.0}))
    assert finding.gain is None
    assert finding.severity is Severity.MEDIUM
    assert [each.value for each in finding.evidence] == [50e6, 3e9, 5e6]


@pytest.mark.parametrize(("compiles", "is_judged"), [(0.9, False), (0.1, True)])
def test_what_compiles_takes_memory(compiles: float, *, is_judged: bool) -> None:
    parts = {Slice.IDLE_COMPILE: compiles, Slice.COMPUTE: 1 - compiles}
    seen = window(answer(parts), trends={m.JOB_RSS: LEAK}, means={m.JOB_STEPS: 10.0})
    assert cannot_judge(NAME, seen) is not is_judged


def test_of_julia_what_is_alive_counts_and_not_its_garbage() -> None:
    facts = {"julia": {"version": "1.10.4", "backend": "cpu"}}
    level = Trend(2e9, 2e9, 0.0, 0.0)
    garbage = window(trends={m.JOB_RSS: LEAK, m.PROCESS_HEAP: level}, facts=facts)
    assert judge(NAME, garbage) is None
    finding = found(NAME, window(trends={m.PROCESS_HEAP: LEAK, m.JOB_RSS: level}, facts=facts))
    assert finding.evidence[0].name == "growth of heap"
    # A version whose heap cannot be read: its memory counts, as everybody's.
    assert found(NAME, window(trends={m.JOB_RSS: LEAK}, facts=facts))


def test_memory_that_is_full_within_the_day() -> None:
    finding = found(NAME, window(trends={m.JOB_RSS: LEAK}, lasts={m.HOST_MEMORY_AVAILABLE: 5e9}))
    assert finding.severity is Severity.HIGH
    assert finding.evidence[-1].value == pytest.approx(100)


def test_what_grows_on_a_gpu_is_full_when_the_gpu_is() -> None:
    free = {m.HOST_MEMORY_AVAILABLE: 500e9}
    seen = tuple(
        SeenGpu(
            str(i), None, owned=True,
            means={m.GPU_MEMORY_TOTAL: 100e9, m.GPU_MEMORY_USED: 40e9},
            lasts={m.GPU_MEMORY_USED: used},
        )
        for i, used in enumerate((90e9, 95e9))
    )  # fmt: skip
    facts = {"torch": {"backend": "cuda"}}
    finding = found(
        NAME, window(trends={m.PROCESS_POOL_USED: LEAK}, lasts=free, gpus=seen, facts=facts)
    )
    assert finding.evidence[-1].value == pytest.approx(100)


def test_what_is_free_is_free_now_and_not_in_the_mean_of_a_time_in_which_it_grew() -> None:
    means = {m.HOST_MEMORY_AVAILABLE: 80e9, m.JOB_MEMORY_LIMIT: 100e9, m.JOB_RSS: 50e9}
    lasts = {m.HOST_MEMORY_AVAILABLE: 20e9, m.JOB_RSS: 90e9}
    finding = found(NAME, window(trends={m.JOB_RSS: LEAK}, means=means, lasts=lasts))
    assert finding.evidence[-1].value == pytest.approx(10e9 / LEAK.per_s)


def test_arrays_count_before_the_rest_of_the_process() -> None:
    trends = {m.JOB_RSS: LEAK, m.PROCESS_LIVE_BYTES: Trend(1e6, 2e9, 33e6, 1.1)}
    finding = found(NAME, window(trends=trends))
    assert "live bytes" in finding.evidence[0].name


@pytest.mark.parametrize(
    "trend",
    [
        Trend(1e9, 4e9, 50e6, 0.1),  # a cache that fills up
        Trend(1e9, 4e9, 50e6, 30.0),  # something was loaded, once
        Trend(40e9, 41e9, 16e6, 1.0),  # little beside what is there
        Trend(1e9, 1.01e9, 1e5, 1.0),
        Trend(4e9, 1e9, -50e6, 1.0),
    ],
)
def test_memory_that_levels_out(trend: Trend) -> None:
    assert is_silent(NAME, window(trends={m.JOB_RSS: trend}))


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, traced("h100_qwen05b"))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_recorded_pair(framework: str) -> None:
    finding = found(NAME, recorded(f"{NAME}/before_{framework}"))
    assert finding.where[0].file.endswith(f"before_{framework}.py")
    assert is_silent(NAME, recorded(f"{NAME}/after_{framework}"))


GROWS = """\
def train(model, batches):
    history, numbers, total = [], [], 0
    for x in batches:
        parts = []
        parts.append(x)
        out = model(x)
        numbers.append(out.mean().item())
        count += 1
        {keeps}
"""


@pytest.mark.parametrize(
    "keeps", ["history.append(out)", "total += out", "total = total + out", "history.extend([out])"]
)
def test_the_line_that_keeps_something_is_named(tmp_path: Path, keeps: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(GROWS.format(keeps=keeps))
    lines = (SourceLine(str(file), 6, "train", 0.9),)
    finding = found(NAME, window(trends={m.JOB_RSS: LEAK}, lines=lines))
    assert [place.line for place in finding.where] == [9]


def test_the_line_that_computes_is_not(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(GROWS.format(keeps="show(out)"))
    lines = (SourceLine(str(file), 6, "train", 0.9),)
    assert found(NAME, window(trends={m.JOB_RSS: LEAK}, lines=lines)).where == ()

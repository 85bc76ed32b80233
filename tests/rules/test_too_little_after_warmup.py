"""The rule too_little_after_warmup."""

from __future__ import annotations

from tests.rules.windows import answer, cannot_judge, found, judge, recorded, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.aggregates import Compiled

NAME = "too_little_after_warmup"
FIXES = {
    "jax": (
        """
import time
import jax, jax.numpy as jnp
params, x = jnp.zeros(3), jnp.ones(3)
step = jax.jit(lambda params, x: params + x)
""",
        "assert float(params[0]) == 110",
    ),
    "pytorch": (
        """
import time
import torch
x, seen = torch.ones(3), []
train_step = seen.append
""",
        "assert len(seen) == 110",
    ),
}
WARM = answer({Slice.COMPUTE: 0.5, Slice.IDLE_COMPILE: 0.5})


def again(count: int) -> tuple[Compiled, ...]:
    """Return what is known of a function that was compiled so often."""
    return (Compiled("jax", "step", count, 10**9, 0, None, None, None),)


def test_a_job_of_a_few_steps() -> None:
    finding = found(NAME, window(steps=8, inside=True))
    assert finding.gain is None
    assert finding.severity is Severity.INFO
    assert finding.evidence[0].value == 8


def test_a_job_of_many_steps() -> None:
    assert judge(NAME, window(steps=10, inside=True)) is None


def test_a_few_long_steps_are_enough() -> None:
    assert judge(NAME, window(steps=3, inside=True, means={m.JOB_STEP_P50: 60.0})) is None


def test_a_program_that_is_compiled_for_the_first_time() -> None:
    finding = found(NAME, window(WARM, steps=100, compiled=again(1)))
    assert finding.evidence[0].value == 0.5


def test_a_program_that_is_compiled_again_and_again() -> None:
    assert judge(NAME, window(WARM, steps=100, compiled=again(30))) is None


def test_steps_that_nobody_counts() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(inside=True))


def test_a_trace_of_one_step() -> None:
    assert judge(NAME, traced("h100_qwen05b")) is None


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_jax"))
    # The agent counts what it saw the end of: the program makes six.
    assert 0 < float(finding.evidence[0].value) <= 6
    assert judge(NAME, recorded(f"{NAME}/after_jax")) is None

"""The rule activations_fill_memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.device_memory import GB, jax, torch
from tests.rules.windows import cannot_judge, found, judge, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.runs.stacks import CodeLine

NAME = "activations_fill_memory"
FIXES = {
    "pytorch": (
        """
import torch
import torch.utils.checkpoint
layer, x = torch.nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)
first = x
""",
        "x.sum().backward()\nassert first.grad is not None",
    ),
    "jax": (
        """
import jax, jax.numpy as jnp
layer = lambda x: jnp.sin(x)
""",
        "assert jax.grad(lambda x: layer(x).sum())(jnp.zeros(2)).tolist() == [1, 1]",
    ),
}


def test_a_small_model_whose_step_fills_the_memory() -> None:
    finding = found(NAME, torch())
    assert finding.severity is Severity.LOW
    assert finding.gain is None
    said = {each.name: each.value for each in finding.evidence}
    # At most 16 bytes a parameter are there all the time.
    assert said["in use all the time, at most"] == 16e9
    assert said["in use during a step only, at least"] == 72 * GB - 16e9


@pytest.mark.parametrize("more", [{"failed": 2}, {"means": {m.PROCESS_ALLOC_RETRIES: 0.2}}])
def test_where_allocations_fail_it_limits_the_job(more: dict) -> None:  # type: ignore[type-arg]
    assert found(NAME, torch(**more)).severity is Severity.MEDIUM


def test_a_step_of_jax_that_trains() -> None:
    assert found(NAME, jax()).severity is Severity.LOW


def test_what_a_forward_pass_needs_is_not_kept_for_a_backward_pass() -> None:
    assert judge(NAME, jax({"output_bytes": GB >> 4})) is None


def test_a_large_model_fills_the_memory_itself() -> None:
    large = {"parameters": 7 * 10**9, "parameter_bytes": 14 * 10**9}
    ranges = {m.PROCESS_POOL_USED: (58.0 * GB, 70.0 * GB)}
    assert judge(NAME, torch(facts=large, ranges=ranges)) is None
    assert judge(NAME, jax({"argument_bytes": 40 * GB, "temporary_bytes": 15 * GB})) is None


def test_a_large_batch_or_room_is_no_fault() -> None:
    assert judge(NAME, torch(facts={"batch_size": 512})) is None
    assert judge(NAME, torch({m.PROCESS_POOL_PEAK: 50.0 * GB})) is None


def test_layers_that_are_recomputed_already(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def forward(self, x):\n    return checkpoint(self.layer, x)\n")
    samples = stacks((CodeLine(str(file), 2, "forward"), (), 50))
    assert judge(NAME, torch(stacks=samples)) is None


def test_without_an_allocator_or_a_model_it_is_not_judged() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, torch(facts={"parameters": None}))

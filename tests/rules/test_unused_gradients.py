"""The rule unused_gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, recorded, stacks, window
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules.unused_gradients import BACK, OF_NODES, ON_GPU
from whyidle.monitor.signals.window import Window
from whyidle.monitor.traces.calls import ALWAYS_LISTED

NAME = "unused_gradients"
FIXES = {
    "pytorch": (
        """
import torch
model = torch.nn.Module()
model.encoder, model.head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
your_optimizer, as_before = torch.optim.SGD, {"lr": 0.1}
""",
        """
model.head(model.encoder(torch.ones(2, 3))).sum().backward()
assert model.encoder.weight.grad is None
assert len(optimizer.param_groups[0]["params"]) == 2
""",
    ),
}
TEXT = "opt = torch.optim.AdamW(model.head.parameters(), lr=1e-3)\nloss.backward()\n"
NODE = "autograd::engine::evaluate_function: AddmmBackward0"


def job(
    folder: Path,
    *tensors: int,
    brought: float = 40.0,
    passes: float = 1.0,
    kind: str = "cpu",
    steps: int = 10,
    text: str = TEXT,
    extra: Mapping[str, float] | None = None,
    **said: Any,
) -> Window:
    """Return a job with optimizers of so many parameters, and what its passes back bring."""
    file = folder / f"train_{abs(hash(text))}.py"
    file.write_text(text)
    calls = {
        **(extra or {}),
        "torch::autograd::AccumulateGrad": brought,
        "aten::ones_like": passes,
        NODE: 30.0,
    }
    trace = answer({Slice.COMPUTE: 0.9}, kind=kind, calls=calls, steps=steps)
    for call in trace["calls"]:
        call["total_ns"] = trace["budget"]["total_ns"] // 2 if call["name"] == NODE else 0
    optimizers: list[dict[str, Any]] = [{"kind": "AdamW", "tensors": n} for n in tensors]
    backend = "cpu" if kind == "cpu" else "cuda"
    facts = {"torch": {"backend": backend, "optimizers": optimizers, **said}}
    lines = (SourceLine(str(file), 2, "step", 1.0),)
    return window(trace, facts=facts, lines=lines, inside=True)


def test_an_encoder_that_nobody_trains(tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path, 4))
    assert [place.line for place in finding.where] == [1]
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(BACK[0] * OF_NODES[0] * 0.5)
    assert finding.gain.high == pytest.approx(BACK[1] * OF_NODES[1] * 0.5)
    assert [each.value for each in finding.evidence] == [40, 4]


def test_the_samples_say_how_long_a_backward_pass_takes(tmp_path: Path) -> None:
    traced = job(tmp_path, 4)
    (line,) = traced.job.lines
    ahead = replace(line, line=1, function="forward")
    seen = stacks((line, (), 80.0), (ahead, (), 20.0))
    gain = found(NAME, replace(traced, job=replace(traced.job, stacks=seen))).gain
    assert gain is not None
    assert BACK[0] * 0.6 < gain.low < BACK[0] * 0.8
    assert BACK[1] * 0.8 < gain.high


def test_gradients_that_are_added_up_over_several_passes(tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path, 4, brought=160.0, passes=4.0))
    assert [each.value for each in finding.evidence] == [40, 4]
    assert is_silent(NAME, job(tmp_path, 40, brought=160.0, passes=4.0))


def test_a_network_beside_the_one_that_is_trained(tmp_path: Path) -> None:
    # As a loss by the features of another network, which takes part and is never updated.
    assert found(NAME, job(tmp_path, 20, brought=52.0)).gain is not None


def test_on_a_gpu_it_is_a_part_of_all_that_is_computed(tmp_path: Path) -> None:
    finding = found(NAME, job(tmp_path, 4, kind="gpu"))
    assert finding.severity is Severity.LOW
    assert finding.gain is not None
    assert finding.gain.low == 0
    assert finding.gain.high == pytest.approx(BACK[1] * ON_GPU * 0.9)


def test_some_small_parameters_that_nobody_updates(tmp_path: Path) -> None:
    # As scales of a norm beside all weights.
    finding = found(NAME, job(tmp_path, 20, brought=52.0))
    assert finding.severity is Severity.LOW
    assert finding.gain is not None
    assert finding.gain.low == 0


@pytest.mark.parametrize(
    ("line", "speaks"),
    [
        ("loss.backward(retain_graph=True)", True),
        ("self.manual_backward(loss)", True),
        ("accelerator.backward(loss)", True),
        ("loss.backward(", True),
        ("chunk.backward(gradient=g)", False),
        ("log_prob.backward(-advantage)", False),
        ("engine = deepspeed.initialize(model=model)", False),
    ],
)
def test_passes_that_are_given_their_gradients(tmp_path: Path, line: str, *, speaks: bool) -> None:
    assert is_silent(NAME, job(tmp_path, 4, text=f"{TEXT}{line}\n")) is not speaks


def test_passes_within_a_pass(tmp_path: Path) -> None:
    assert "CheckpointFunctionBackward" in ALWAYS_LISTED
    assert is_silent(NAME, job(tmp_path, 4, extra={"CheckpointFunctionBackward": 6.0}))


@pytest.mark.parametrize(
    ("wraps", "speaks"),
    [("DistributedDataParallel", True), ("FullyShardedDataParallel", False), (None, False)],
)
def test_ranks_may_update_flat_shards(tmp_path: Path, wraps: str | None, *, speaks: bool) -> None:
    seen = job(tmp_path, 4, world_size=2, parallel=wraps)
    assert cannot_judge(NAME, seen) is not speaks


@pytest.mark.parametrize(
    ("tensors", "brought", "passes"),
    [
        # All are trained; inputs ask for one, too; a GAN, whose critic is passed by the generator.
        ((40,), 40.0, 1.0),
        ((40,), 42.0, 1.0),
        ((20, 20), 80.0, 3.0),
        ((20, 20), 60.0, 2.0),
        # Another one for each layer: not all of them are named.
        ((1,) * 8, 40.0, 1.0),
    ],
)
def test_gradients_that_are_used(
    tmp_path: Path, tensors: tuple[int, ...], brought: float, passes: float
) -> None:
    assert is_silent(NAME, job(tmp_path, *tensors, brought=brought, passes=passes))


def test_a_trace_that_begins_within_a_pass(tmp_path: Path) -> None:
    # Of 40 that are trained: the end of one pass, and the whole of another.
    assert is_silent(NAME, job(tmp_path, 40, brought=79.0, passes=1.0, steps=1))


def test_what_is_not_known(tmp_path: Path) -> None:
    assert cannot_judge(NAME, job(tmp_path))
    assert is_silent(NAME, job(tmp_path, 4, passes=0.0))
    assert cannot_judge(NAME, window(facts={"torch": {"backend": "cpu"}}, inside=True))
    assert is_silent(NAME, window(facts={"jax": {"backend": "cpu"}}, inside=True))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert len(finding.where) == 1
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))


def test_another_fault() -> None:
    assert is_silent(NAME, recorded("unfused_optimizer/before_torch"))

"""The rule exposed_communication."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, judge, traced, window
from tests.traces.real import TRUTHS
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.estimate import Running
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

NAME = "exposed_communication"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import contextlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
ACCUMULATE, steps = 2, []
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.register_step_post_hook(lambda *args: steps.append(1))
loss_of = torch.nn.functional.mse_loss
batches = [(torch.ones(8, 4), torch.zeros(8, 2))] * 4
""",
        """
dist.destroy_process_group()
assert len(steps) == 2 and isinstance(model, DistributedDataParallel)
""",
    ),
    "jax": (
        """
import jax
import jax.numpy as jnp
def step(state, x):
    return state + x.sum()
""",
        "assert step(jnp.zeros(()), jnp.ones((8, 4))) == 32",
    ),
}


def _slices(exposed: float, compute: float = 0.5) -> dict[Slice, float]:
    return {Slice.COMPUTE: compute, Slice.EXPOSED_COMM: exposed}


def test_a_gpu_that_only_communicates_for_a_third_of_the_time() -> None:
    finding = found(NAME, window(answer(_slices(0.3), kind="gpu"), kind="file"))
    assert finding.slice is Slice.EXPOSED_COMM
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.15, 0.3))


def test_no_more_comes_back_than_the_backward_pass_can_hide() -> None:
    finding = found(NAME, window(answer(_slices(0.5, compute=0.3), kind="gpu"), kind="file"))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.2)
    assert finding.gain.low == pytest.approx(0.1)


def test_communication_that_is_mostly_hidden() -> None:
    assert judge(NAME, window(answer(_slices(0.05, 0.9), kind="gpu"), kind="file")) is None


def test_without_a_trace_nobody_knows() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(facts={"torch": {"world_size": 8}}))


@pytest.mark.parametrize(
    "facts",
    [
        {"torch": {"world_size": 1, "devices_used": 1}},
        {"jax": {"devices": 8, "devices_used": 1}},
        {"jax": {"backend": "cpu", "devices_used": 8}},
    ],
)
def test_a_job_with_nobody_to_talk_to(facts: dict[str, dict[str, object]]) -> None:
    assert judge(NAME, window(facts=facts)) is None


def test_the_real_job_of_two_ranks_hides_nothing_of_it() -> None:
    finding = found(NAME, traced("v100_2rank_nccl"))
    assert finding.gain is not None
    assert finding.gain.low < 0.15 < finding.gain.high
    evidence = {each.name: each.value for each in finding.evidence}
    (device,) = TRUTHS["v100_2rank_nccl"]["devices"].values()
    share = device["exposed_comm_ns"] / device["span_ns"]
    assert evidence["only communicating"] == pytest.approx(share, abs=0.01)
    assert evidence["communication hidden behind computing"] == 0.0
    assert evidence["collectives"] == pytest.approx(404)


def test_messages_of_a_pipeline_are_reported_and_no_saving_is_made_up() -> None:
    finding = found(NAME, traced("rank0_of_128"))
    assert finding.gain is None
    assert finding.severity is Severity.MEDIUM


@pytest.mark.parametrize(
    "trace",
    ["h100_qwen05b", "mi300_ddp_resnet18", "v100_resnet50_workers0", "jax_conv_8gpu"],
)
def test_traces_without_communication(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def test_a_job_that_waits_for_its_host_most_of_the_time() -> None:
    assert is_silent(NAME, traced("a100_nccl_small"))


def test_a_pipeline_is_not_told_of_buckets() -> None:
    finding = found(NAME, traced("rank0_of_128"))
    assert finding.fixes is not None
    fix = finding.fixes["pytorch"]
    assert "gradient_as_bucket_view" not in fix.code
    assert "four parts per stage" in fix.text
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    made = inspect.signature(pipelining.Schedule1F1B)
    assert list(made.parameters)[:3] == ["stage", "n_microbatches", "loss_fn"]


# Ranks on a CPU: the line that goes back through the model also waits for the exchange.
IN_TORCH = CodeLine("/venv/lib/python3.11/site-packages/torch/autograd/graph.py", 9, "run")


def ranks(waiting: float, **facts: Any) -> Window:
    """Return a rank of a CPU whose main thread waits so much of its time inside the framework."""
    known = {"backend": "cpu", "world_size": 2, **facts}
    both = StackSamples()
    asleep, awake = round(400 * waiting), round(400 * (1 - waiting))
    chain = Chain((CodeLine("/job/train.py", 30, "train"),), IN_TORCH)
    both.samples += 400
    both.count(chain, asleep, asleep, float(asleep))
    both.count(chain, awake, awake, 0.0)
    seen = window(stacks=both, facts={"torch": known}, inside=True)
    return replace(seen, estimate=Running("estimate", {}))


@pytest.mark.parametrize("waiting", [0.5, 0.69, 0.87])
def test_ranks_on_a_cpu_that_wait_for_each_other_are_told_so(waiting: float) -> None:
    verdict = found(NAME, ranks(waiting))
    assert verdict.gain is not None
    assert verdict.gain.low < waiting * 0.8 < verdict.gain.high
    assert verdict.where[0].line == 30
    assert verdict.title == "Ranks exchange gradients after every batch"


def test_ranks_that_compute_and_a_job_alone_have_nothing_to_exchange() -> None:
    assert is_silent(NAME, ranks(0.3))
    assert is_silent(NAME, ranks(0.69, world_size=1))

"""The rule eager_launch_bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.window import Window

NAME = "eager_launch_bound"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import torch
model = torch.nn.Linear(4, 2)
""",
        """
assert model._compiled_call_impl is not None
model._compiled_call_impl = None
model(torch.ones(1, 4)).sum().backward()
""",
    ),
}


def on_gpu(graphs: int) -> Window:
    trace = answer(
        {Slice.COMPUTE: 0.5, Slice.IDLE_DISPATCH: 0.5},
        kind="gpu",
        calls={"aten::add": 100},
        launching={
            "operations": 5000, "launched": 5000, "calls": 1000,
            "graph_operations": graphs, "calls_per_step": 100.0,
        },
    )  # fmt: skip
    return window(trace, kind="file")


# What is in each trace, and computes next to nothing.
CHEAP: Final = {f"aten::{name}": (500, 0.01) for name in ("add", "t", "view", "mul", "copy_")}
ADDS: Final = {"aten::add": 300}


def on_cpu(step_ms: float, batch: int | None = None, calls: Mapping[str, float] = ADDS) -> Window:
    trace = answer({Slice.COMPUTE: 1.0}, calls=calls)
    trace["devices"][0]["kernels"] = 3000
    means = {m.JOB_STEPS: 10.0, m.JOB_MAIN_THREAD: step_ms / 100}
    return window(trace, means=means, facts={"torch": {"backend": "cpu", "batch_size": batch}})


@pytest.mark.parametrize("step_ms", [2.7, 2.1, 1.8])
def test_a_model_that_may_be_called_for_one_sample_is_not_told_to_compile(step_ms: float) -> None:
    # Names letter by letter, a policy for one observation, a time series: no loader says a batch.
    finding = found(NAME, on_cpu(step_ms))
    assert finding.gain is not None
    assert finding.gain.low == 0
    assert finding.fixes is not None
    assert finding.fixes["pytorch"].text.startswith("Compute more per call")
    assert "compile(" not in finding.fixes["pytorch"].code


def test_a_model_that_is_known_to_take_batches_is() -> None:
    finding = found(NAME, on_cpu(2.7, batch=64))
    assert finding.gain is not None
    assert finding.gain.low > 0.2
    assert finding.fixes is None
    assert is_silent(NAME, on_cpu(2.7, batch=1))


def test_a_gpu_that_waits_for_launches() -> None:
    finding = found(NAME, on_gpu(graphs=0))
    assert finding.gain is not None
    assert finding.slice is Slice.IDLE_DISPATCH
    assert 0.19 < finding.gain.low < finding.gain.high < 0.51


def test_work_that_graphs_launch() -> None:
    assert is_silent(NAME, on_gpu(graphs=4000))


def test_many_small_operators_on_a_cpu() -> None:
    finding = found(NAME, on_cpu(step_ms=4.5))
    assert finding.gain is not None
    assert finding.evidence[0].value == 300
    assert (finding.evidence[1].value, finding.evidence[1].unit) == (pytest.approx(15), "us")
    assert finding.where == ()


def test_operators_that_have_something_to_do() -> None:
    assert is_silent(NAME, on_cpu(step_ms=20))


@pytest.mark.parametrize(
    ("own", "is_bound"),
    [
        # Of 300 operators a step 100 are products, and take 0.4 of it; or what they cost anyway.
        ({"aten::mm": (1000, 0.44)}, False),
        ({"aten::mm": (1000, 0.29)}, True),
        # Numbers that are drawn, a convolution with its gradient.
        ({"aten::bernoulli_": (20, 0.25)}, False),
        ({"aten::mkldnn_convolution": (30, 0.15), "aten::convolution_backward": (30, 0.2)}, False),
        # What lies around them is Python, and no work.
        ({"Optimizer.step#Adam.step": (10, 0.5), "AddmmBackward0": (30, 0.3)}, True),
        # On a host, or below a profiler, where each costs more than it does elsewhere.
        ({f"aten::of_{n}": (150, 0.1) for n in range(9)}, True),
    ],
)
def test_what_operators_compute_no_compiler_takes_away(
    own: dict[str, tuple[int, float]], is_bound: bool
) -> None:
    seen = on_cpu(step_ms=4.5)
    trace = seen.trace
    assert trace is not None
    trace.answer["top_operators"] = [
        {"name": name, "count": count, "total_ns": int(share * trace.total_ns), "share": share}
        for name, (count, share) in {**CHEAP, **own}.items()
    ]
    assert is_silent(NAME, seen) != is_bound


def test_a_small_batch_is_another_fault() -> None:
    assert is_silent(NAME, on_cpu(step_ms=4.5, batch=8))


def test_a_model_that_is_compiled() -> None:
    assert is_silent(NAME, on_cpu(step_ms=4.5, calls={"Torch-Compiled Region: 0/0": 300}))


@pytest.mark.parametrize("trace", ["v100_2rank_nccl", "a100_nccl_small"])
def test_traces_that_wait_for_the_host(trace: str) -> None:
    finding = found(NAME, traced(trace))
    assert finding.gain is not None
    assert finding.gain.expected > 0.15
    assert any(each.name == "launches" for each in finding.evidence)


@pytest.mark.parametrize("trace", ["h100_qwen05b", "jax_gemm_mi300"])
def test_traces_that_do_not(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    without_steps = answer({Slice.COMPUTE: 1.0}, steps=0, calls={"aten::add": 3})
    assert cannot_judge(NAME, window(without_steps))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert finding.gain is not None
    # Measured by CPU time: 4.0 times as fast.
    assert finding.gain.speedup[0] < 4.0 < finding.gain.speedup[1]
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))


def test_a_trace_of_tensorflow_or_of_nobody_known() -> None:
    assert traced("tf_3gpu").frameworks == ("tensorflow",)
    assert judge(NAME, traced("tf_3gpu")) is None
    gpu = on_gpu(graphs=0).traces[0].answer
    assert judge(NAME, window({**gpu, "format": "xplane", "calls": []}, kind="file")) is None


def test_values_that_are_read_are_no_operators() -> None:
    assert found(NAME, on_cpu(step_ms=4.5))
    # Nine of ten only read one, as who prints each gradient does.
    assert is_silent(NAME, on_cpu(step_ms=4.5, calls={"aten::item": 270}))


@pytest.mark.parametrize(
    ("calls", "is_bound"),
    [
        ({"aten::add": 270}, True),
        ({"aten::to": 270, "aten::_to_copy": 270}, True),
        # `p.detach().cpu().numpy()` of a parameter on the CPU.
        ({"aten::to": 140, "detach": 70, "aten::resolve_conj": 30, "aten::resolve_neg": 30}, False),
        ({"aten::to": 270}, False),
    ],
)
def test_what_gives_back_what_it_was_given_costs_nothing(
    calls: Mapping[str, float], is_bound: bool
) -> None:
    # Beside a training of thirty operators.
    trains = {"autograd::engine::evaluate_function: Mul": 10}
    assert (judge(NAME, on_cpu(step_ms=1.8, calls={**calls, **trains})) is not None) is is_bound


@pytest.mark.parametrize(("nodes", "is_bound"), [(10, False), (100, True)])
def test_operators_beside_the_training_are_cheap(nodes: int, is_bound: bool) -> None:
    # Gradients come back through a few; the rest looks at each sample, or at each weight.
    seen = on_cpu(step_ms=4.0, calls={"autograd::engine::evaluate_function: Mul": nodes})
    assert (judge(NAME, seen) is not None) is is_bound

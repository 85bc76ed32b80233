"""What a GPU does while it works: bound by what, with tensor cores or not, and how much of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import answer, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.device_activity import busy
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window


def measured(
    means: dict[Metric, float],
    name: str = "NVIDIA H200",
    program: dict[str, Any] | None = None,
    calls: dict[str, float] | None = None,
) -> Window:
    trace = answer({Slice.COMPUTE: 1.0}, kind="gpu", step_ms=100.0, calls=calls)
    gpus = (SeenGpu("0", name, owned=True, means=means),)
    facts = {"jax": {"backend": "gpu", "largest_executables": [program] if program else []}}
    return window(trace, gpus=gpus, facts=facts)


@pytest.mark.parametrize(
    ("dram", "tensor", "bound"),
    [(0.8, 0.2, "memory"), (0.3, 0.7, "compute"), (0.3, 0.2, "neither")],
)
def test_the_fullest_pipe_is_the_bound(dram: float, tensor: float, bound: str) -> None:
    found = busy(measured({m.GPU_DRAM_ACTIVITY: dram, m.GPU_TENSOR_ACTIVITY: tensor}))
    assert found is not None
    assert found.bound == bound
    assert found.tensor_core_share == (tensor, tensor)
    assert found.efficiency is not None
    assert found.efficiency_source == "gpm"


PROGRAM = {"name": "jit_step", "flops": 989e12 * 0.04, "loops": 0, "whole": True}


def test_known_operations_show_how_much_of_the_peak_is_used() -> None:
    found = busy(measured({}, program=PROGRAM, calls={"PjitFunction(step)": 1.0}))
    assert found is not None
    assert found.efficiency is not None
    assert found.efficiency == pytest.approx(0.4)
    assert found.efficiency_source == "cost analysis"


@pytest.mark.parametrize("change", [{"loops": 1}, {"flops": None}, {"whole": False}])
def test_operations_that_are_not_all_counted_show_nothing(change: dict[str, Any]) -> None:
    found = busy(measured({}, program=PROGRAM | change, calls={"PjitFunction(step)": 1.0}))
    assert found is not None
    assert found.efficiency is None
    assert found.unknown["efficiency"]


@pytest.mark.parametrize("name", ["NVIDIA RTX A1000 Laptop GPU", "Some GPU"])
def test_a_chip_whose_peak_is_not_known_has_no_efficiency(name: str) -> None:
    found = busy(measured({}, name, PROGRAM, {"PjitFunction(step)": 1.0}))
    assert found is not None
    assert found.efficiency is None


def test_kernel_names_show_it_where_no_counter_does() -> None:
    found = busy(traced("h100_qwen05b"))
    assert found is not None
    assert found.bound == "memory"
    assert found.tensor_core_share is not None
    assert 0.3 < found.tensor_core_share[0] <= found.tensor_core_share[1] < 0.45
    assert any("torch.compile" in text for text in found.said)
    assert not any("jax" in text for text in found.said)


def operators(**shares: float) -> list[dict[str, Any]]:
    """Return the list of a trace of 100 ms in which operators take these shares of the time."""
    return [
        {"name": name, "count": 1, "total_ns": int(share * 1e8), "share": share}
        for name, share in shares.items()
    ]


def test_on_a_cpu_the_operators_say_what_it_computes() -> None:
    own = operators(**{
        "sort.0": 0.4, "sort.2": 0.32, "dot.11": 0.05, "fusion": 0.12, "aten::mm": 0.02, "add": 0.01
    })  # fmt: skip
    found = busy(window(answer({Slice.COMPUTE: 1.0}, top_operators=own)))
    assert found is not None
    assert found.said == ["Operator time in a trace of 100 ms: sort 78%, fusion 13%."]
    assert set(found.unknown) == {"bound", "tensor_core_share", "efficiency"}


@pytest.mark.parametrize(
    "own",
    [
        [],
        # A host that works beside them; many alike.
        operators(**{"aten::mm": 0.2, "aten::add": 0.1}),
        operators(**{f"aten::of_{n}": 0.05 for n in range(19)}),
    ],
)
def test_operators_that_are_no_answer(own: list[dict[str, Any]]) -> None:
    assert busy(window(answer({Slice.COMPUTE: 1.0}, top_operators=own))) is None
    assert busy(window()) is None

"""The rule slow_pcie_link: windows by hand, none was recorded on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import SeenGpu

NAME = "slow_pcie_link"


def gpu(generation: float, width: float, rx: float = 4e9, index: str = "0", **more: Any) -> SeenGpu:
    best = {m.GPU_PCIE_GENERATION: generation, m.GPU_PCIE_WIDTH: width}
    return SeenGpu(
        index,
        "NVIDIA A100",
        owned=more.pop("owned", True),
        means={m.GPU_PCIE_RX: rx, m.GPU_PCIE_TX: 1e6},
        info={"pcie_generation_max": 4, "pcie_width_max": 16, **more},
        highest=best,
    )


COPY = {"direction": "host to device", "memory": "pinned", "count": 10, "bytes": 1 << 30,
        "total_ns": 10**9}  # fmt: skip


def copies(gb_per_s: float, label: str = "host to device") -> dict[str, Any]:
    return answer(
        {Slice.COMPUTE: 0.6, Slice.EXPOSED_COPY: 0.4},
        kind="gpu",
        details={Slice.EXPOSED_COPY: {label: 0.4}},
        copies=[COPY | {"gb_per_s": gb_per_s}],
    )


def test_a_link_of_half_the_lanes() -> None:
    finding = found(NAME, window(copies(13.0), gpus=(gpu(4, 8),)))
    assert finding.title == "GPU 0: its PCIe link is 4.0 x8, and could be 4.0 x16"
    assert finding.gain is not None
    # The copies are as fast as the link: at twice its speed they take half as long.
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.1, 0.2))


def test_a_link_of_an_older_generation_and_the_worst_of_several() -> None:
    finding = found(NAME, window(copies(3.0), gpus=(gpu(3, 16), gpu(1, 16, index="3"))))
    assert finding.title == "GPU 3: its PCIe link is 1.0 x16, and could be 4.0 x16"
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.4 * (1 - 4 / 31.5), abs=0.001)


def test_copies_that_the_host_slows_may_not_get_faster() -> None:
    finding = found(NAME, window(copies(2.0, "host to device, pageable"), gpus=(gpu(4, 8),)))
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.0, 0.2))
    assert finding.severity is Severity.LOW


def test_without_a_trace_it_costs_at_most_the_time_of_the_traffic() -> None:
    finding = found(NAME, window(gpus=(gpu(4, 8, rx=7.877e9),)))
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.0, 0.25), abs=0.001)


@pytest.mark.parametrize(
    "healthy",
    [
        gpu(4, 16),
        # Asleep between two copies: power saving lowers the generation.
        gpu(1, 16, rx=3e6),
        gpu(1, 16, owned=False),
    ],
)
def test_links_that_are_well_or_rest(healthy: SeenGpu) -> None:
    assert not found_in(healthy)


def found_in(some: SeenGpu) -> bool:
    return judge(NAME, window(gpus=(some, gpu(4, 16, index="1")))) is not None


def test_nothing_known_of_the_link() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(gpus=(gpu(4, 8, pcie_width_max=None),)))

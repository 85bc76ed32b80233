"""The rule clock_throttled."""

from __future__ import annotations

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules.clock_throttled import KINDS
from whyidle.monitor.signals.recorded import SeenGpu

NAME = "clock_throttled"
COOL = dict.fromkeys(KINDS, 0.0)


def _gpu(index: str = "0", *, owned: bool = True, **means: float) -> SeenGpu:
    named = {getattr(m, name): value for name, value in means.items()}
    return SeenGpu(index, "NVIDIA H200", owned=owned, means={**COOL, **named})


def test_a_gpu_that_the_hardware_slows_down_for_heat() -> None:
    hot = _gpu("1", GPU_THROTTLED_HARDWARE_HEAT=0.8, GPU_UTILISATION=1.0, GPU_TEMPERATURE=92.0)
    finding = found(NAME, window(gpus=(_gpu(), hot)))
    assert finding.title == "GPU 1: the hardware slows it down for heat"
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.2, 0.4))
    assert finding.slice is Slice.COMPUTE
    assert [each.name for each in finding.evidence] == ["clocks held down", "temperature"]


def test_only_the_time_of_computing_comes_back() -> None:
    trace = answer({Slice.COMPUTE: 0.5, Slice.IDLE_INPUT: 0.5}, kind="gpu")
    finding = found(NAME, window(trace, gpus=(_gpu(GPU_THROTTLED_BRAKE=0.8),)))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("metric", "severity"),
    [
        ("GPU_THROTTLED_HEAT", Severity.MEDIUM),
        ("GPU_THROTTLED_SYNC", Severity.LOW),
        # A GPU at full load that touches its cap works as it should.
        ("GPU_THROTTLED_POWER", Severity.INFO),
        # How much of the time it computed is not known.
        ("GPU_THROTTLED_BRAKE", Severity.HIGH),
    ],
)
def test_where_no_saving_is_known_the_kind_says_how_much_it_matters(
    metric: str, severity: Severity
) -> None:
    finding = found(NAME, window(gpus=(_gpu(**{metric: 0.5}),)))
    assert finding.gain is None
    assert finding.severity is severity


def test_heat_is_named_before_the_power_cap() -> None:
    both = _gpu(GPU_THROTTLED_POWER=0.9, GPU_THROTTLED_HEAT=0.2)
    finding = found(NAME, window(gpus=(both,)))
    assert finding.title == "GPU 0: the driver slows it down for heat"


def test_gpus_that_run_at_full_clocks() -> None:
    assert judge(NAME, window(gpus=(_gpu(), _gpu("1", GPU_THROTTLED_HEAT=0.04)))) is None


def test_another_jobs_gpu_is_not_our_concern() -> None:
    hot = _gpu("1", owned=False, GPU_THROTTLED_HEAT=0.9)
    assert judge(NAME, window(gpus=(_gpu(), hot))) is None


def test_nothing_measured() -> None:
    nothing: dict[Metric, float] = {}
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(gpus=(SeenGpu("0", None, owned=True, means=nothing),)))

"""The rule wasted_energy: windows by hand, none was recorded on a GPU."""

from __future__ import annotations

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core import prices
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "wasted_energy"
STARVED = {Slice.COMPUTE: 0.4, Slice.IDLE_INPUT: 0.6}


@pytest.fixture(autouse=True)
def no_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (prices.KWH, prices.GPU_HOUR, prices.CURRENCY):
        monkeypatch.delenv(name, raising=False)


def starved(*watts: float, slices: dict[Slice, float] = STARVED) -> Window:
    gpus = tuple(
        SeenGpu(str(i), "NVIDIA H100", owned=True, means={m.GPU_POWER: w})
        for i, w in enumerate(watts)
    )
    return window(answer(slices, kind="gpu"), means={m.JOB_STEP_P50: 0.5}, gpus=gpus)


def test_a_starved_job_is_told_what_its_idle_time_draws() -> None:
    finding = found(NAME, starved(300.0, 200.0))
    assert (finding.gain, finding.severity) == (None, Severity.INFO)
    said = {each.name: each.value for each in finding.evidence}
    assert said["power drawn"] == 500.0
    assert said["into idle time, at most"] == pytest.approx(300.0)
    assert said["energy a step"] == pytest.approx(250.0)
    assert said["of that, at most"] == pytest.approx(150.0)


def test_money_where_a_price_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("money" in each.name for each in found(NAME, starved(500.0)).evidence)
    monkeypatch.setenv(prices.KWH, "0.40")
    monkeypatch.setenv(prices.GPU_HOUR, "2")
    monkeypatch.setenv(prices.CURRENCY, "EUR")
    money = found(NAME, starved(500.0)).evidence[-1]
    # 300 W for an hour are 0.3 kWh; and 0.6 of an hour of one GPU.
    assert (money.value, money.unit) == (pytest.approx(0.12 + 1.20), "EUR an hour")


def test_without_a_trace_only_what_surely_is_idle_counts() -> None:
    means = {m.GPU_POWER: 300.0, m.GPU_UTILISATION: 0.3, m.GPU_SM_ACTIVITY: 0.1}
    gpus = (SeenGpu("0", "NVIDIA A100", owned=True, means=means),)
    idle = found(NAME, window(gpus=gpus)).evidence[1]
    assert (idle.value, idle.source) == (pytest.approx(0.7), "nvml")


def test_a_gpu_at_work_wastes_nothing_worth_a_line() -> None:
    assert judge(NAME, starved(700.0, slices={Slice.COMPUTE: 0.9, Slice.IDLE_SYNC: 0.1})) is None


def test_a_job_on_a_cpu_is_none_of_it() -> None:
    assert judge(NAME, window(answer(STARVED))) is None


def test_without_power_nothing_is_said() -> None:
    assert cannot_judge(NAME, window(answer(STARVED, kind="gpu")))

"""The probe against the fake library: the real binding, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import TAPES
from tests.fake_nvml import count_calls
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core import pcie
from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.sources.fields import WRAPS, Fields
from whyidle.monitor.sources.news import GpuEvent, News
from whyidle.monitor.sources.nvml import Nvml, Unknown

PLAY = Path(__file__).parent / "play.py"
Tape = Callable[..., dict[str, str]]
GPM = ("sm_activity_ratio", "sm_occupancy_ratio", "tensor_activity_ratio", "dram_activity_ratio")


def play(env: dict[str, str], reads: int = 3, between: float = 0.25, limit: float = 2.0) -> Any:
    done = subprocess.run(
        [sys.executable, str(PLAY), str(reads), str(between), str(limit)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def gpu(reading: Any, tick: int = -1, index: str = "0") -> Any:
    return reading["ticks"][tick]["gpus"][index]


def events(reading: Any) -> list[tuple[str, str]]:
    return [(kind, index) for t in reading["ticks"] for kind, index, _ in t["events"]]


def test_a_hopper_reports_everything(tape: Tape) -> None:
    values = gpu(play(tape("one_gpu", TRAINER=os.getpid())))["values"]
    assert values["utilisation_ratio"] == 0.97
    assert values["memory_total_bytes"] == 150754820096
    assert values["memory_used_bytes"] == 61203283968
    assert values["power_watts"] == pytest.approx(612, rel=0.05)
    assert values["energy_joules"] == pytest.approx(612 * 0.5, rel=0.3)
    # The tape's ramp: 4.8 GB in 4 s into the GPU, 180 MB/s out of it.
    assert values["pcie_rx_bytes_per_second"] == pytest.approx(1.2e9, rel=0.2)
    assert values["pcie_tx_bytes_per_second"] == pytest.approx(1.8e8, rel=0.2)
    assert values["nvlink_rx_bytes_per_second"] == pytest.approx(40000 * 1024, rel=0.2)
    assert values["throttled_power_ratio"] == pytest.approx(0.25, rel=0.2)
    assert values["sm_clock_megahertz"] == 1890
    assert all(0 < values[name] <= 1 for name in GPM)


def test_every_gpu_metric_has_a_value_or_a_reason(tape: Tape) -> None:
    for name in ("one_gpu", "ampere", "sentinels", "no_permission", "mig"):
        reading = gpu(play(tape(name, TRAINER=os.getpid())), tick=0)
        for metric in metrics_of(Scope.GPU):
            column = metric.column
            assert (column in reading["values"]) != (column in reading["unknown"]), (
                f"{name}: {column}"
            )


def test_a_first_sample_says_that_a_rate_needs_a_second(tape: Tape) -> None:
    first = gpu(play(tape("one_gpu", TRAINER=os.getpid())), tick=0)
    assert first["unknown"]["pcie_rx_bytes_per_second"] == "needs a second sample"
    assert first["unknown"]["sm_activity_ratio"] == "needs a second sample"
    assert first["values"]["energy_joules"] == 0


def test_the_20_ms_call_is_never_made(tape: Tape, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    play({**tape("one_gpu", TRAINER=os.getpid()), "WHYIDLE_NVML_CALLS": str(calls)})
    counted = count_calls(calls)
    assert counted["nvmlDeviceGetFieldValues"] == 3
    assert "nvmlDeviceGetPcieThroughput" not in counted


def test_gpm_is_left_out_when_ticks_are_too_close(tape: Tape) -> None:
    reading = play(tape("one_gpu", TRAINER=os.getpid()), reads=3, between=0.05)
    between = gpu(reading, tick=1)
    assert "sm_activity_ratio" not in between["values"]
    assert "sm_activity_ratio" not in between["unknown"]


def test_an_older_gpu_says_what_it_cannot(tape: Tape, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    reading = gpu(play({**tape("ampere", TRAINER=os.getpid()), "WHYIDLE_NVML_CALLS": str(calls)}))
    assert reading["values"]["utilisation_ratio"] == 0.85
    # No average power in the batch, so the older call answers.
    assert reading["values"]["power_watts"] == 310
    assert reading["unknown"]["sm_activity_ratio"] == "not supported here"
    assert reading["unknown"]["pcie_rx_bytes_per_second"] == "not supported here"
    assert reading["values"]["memory_temperature_celsius"] == 55


def test_sentinels_are_blank_and_never_numbers(tape: Tape) -> None:
    reading = play(tape("sentinels", TRAINER=os.getpid()))
    last = gpu(reading)
    for column in (
        "memory_bandwidth_ratio",
        "memory_used_bytes",
        "power_watts",
        "power_limit_watts",
        "temperature_celsius",
        "memory_temperature_celsius",
        "sm_clock_megahertz",
        "energy_joules",
        "pcie_tx_bytes_per_second",
        "sm_occupancy_ratio",
        "dram_activity_ratio",
        "fp32_activity_ratio",
        "fp16_activity_ratio",
    ):
        assert column not in last["values"], column
    process = next(iter(last["processes"].values()))
    assert process["values"] == {}
    # Both sides of the contradiction are shown, and marked as one.
    assert last["values"]["utilisation_ratio"] == 1.0
    assert last["values"]["sm_activity_ratio"] == 0.0
    assert events(reading) == [("contradiction", "0")]


def test_what_is_not_permitted_says_so(tape: Tape) -> None:
    reading = gpu(play(tape("no_permission")))
    assert reading["values"]["utilisation_ratio"] == 0.77
    assert reading["unknown"]["sm_activity_ratio"] == "no permission"
    assert reading["unknown"]["energy_joules"] == "no permission"
    assert reading["processes_unknown"] == "no permission"


def test_two_processes_share_a_gpu(tape: Tape) -> None:
    reading = play(tape("two_processes", TRAINER=4711, NEIGHBOUR=4712), reads=5, between=0.5)
    assert set(gpu(reading, 0)["processes"]) == {"4711"}
    both = gpu(reading, 4)["processes"]
    assert both["4711"]["values"] == {"memory_used_bytes": 20000000000, "sm_share_ratio": 0.31}
    assert both["4712"]["values"] == {"memory_used_bytes": 30000000000, "sm_share_ratio": 0.66}


def test_mig_instances_stand_beside_their_gpu(tape: Tape) -> None:
    reading = play(tape("mig", TRAINER=4711))
    assert list(reading["names"]) == ["0", "0:0", "0:1"]
    whole, first = gpu(reading, index="0"), gpu(reading, index="0:0")
    assert whole["unknown"]["utilisation_ratio"] == "not reported in MIG mode"
    assert first["values"]["memory_used_bytes"] == 8500000000
    assert first["values"]["sm_activity_ratio"] == pytest.approx(0.55)
    assert list(first["processes"]) == ["4711"]
    assert first["processes"]["4711"]["unknown"]["sm_share_ratio"] == "not reported in MIG mode"


def test_a_lost_gpu_does_not_stop_the_others(tape: Tape) -> None:
    reading = play(tape("lost"), reads=6, between=0.5)
    assert gpu(reading, 0, "1")["values"]["utilisation_ratio"] == 0.9
    gone = gpu(reading, 5, "1")
    assert gone["lost"]
    assert gone["values"] == {}
    assert set(gone["unknown"].values()) == {"GPU lost"}
    assert gpu(reading, 5, "0")["values"]["utilisation_ratio"] == 0.9
    assert events(reading).count(("gpu_lost", "1")) == 1
    assert ("xid", "1") in events(reading)


def test_a_hung_call_stops_neither_the_loop_nor_the_other_gpu(tape: Tape) -> None:
    reading = play(tape("hang"), reads=12, between=0.5, limit=0.4)
    reasons = [t["gpus"]["1"]["unknown"].get("power_watts") for t in reading["ticks"]]
    assert reasons.count("NVML took too long for this tick") >= 3
    assert reasons.count("NVML does not answer") >= 1
    assert all(t["gpus"]["0"]["values"]["utilisation_ratio"] == 0.9 for t in reading["ticks"])
    assert gpu(reading, 11, "1")["values"]["utilisation_ratio"] == 0.9
    assert events(reading) == [("nvml_hung", "1"), ("nvml_back", "1")]


@pytest.mark.parametrize(
    ("name", "said"), [("mismatch", "different versions"), ("no_driver", "driver is not loaded")]
)
def test_a_driver_that_does_not_work_is_one_sentence(tape: Tape, name: str, said: str) -> None:
    reading = play(tape(name))
    assert said in reading["problem"]
    assert reading["next"]


def test_no_driver_library_is_one_sentence() -> None:
    reading = play({"LD_LIBRARY_PATH": "/nonexistent"})
    if "problem" not in reading:
        pytest.skip("this machine has an NVIDIA driver")
    assert "no NVIDIA driver library" in reading["problem"]


def test_a_slow_driver_is_late_and_not_hung(tape: Tape, tmp_path: Path) -> None:
    slow = tmp_path / "slow.tape"
    slow.write_text((TAPES / "hang.tape").read_text().rpartition("fault")[0]
                    + "latency nvmlDeviceGetFieldValues 150000\n")  # fmt: skip
    reading = play(tape(slow), reads=6, between=0.3, limit=0.2)
    for index in ("0", "1"):
        known = [t["gpus"][index]["values"].get("utilisation_ratio") for t in reading["ticks"]]
        assert known.count(0.9) >= 2, index
    assert events(reading) == []


def test_a_gpu_that_is_always_slow_still_reports_and_starves_nobody(
    tape: Tape, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.tape"
    base = (TAPES / "hang.tape").read_text().rpartition("fault")[0]
    slow.write_text(base + "fault 0 nvmlDeviceGetTemperature 0-inf hang=0.34\n")
    reading = play(tape(slow), reads=12, between=0.4, limit=0.28)
    known = {
        index: [t["gpus"][index]["values"].get("utilisation_ratio") for t in reading["ticks"]]
        for index in ("0", "1")
    }
    # A reading that comes late is not thrown away: it is the next tick's.
    assert known["0"].count(0.9) >= 4
    assert known["1"].count(0.9) >= 8
    assert events(reading) == []


def test_the_same_news_is_reported_once() -> None:
    news = News()
    for _ in range(3):
        news.tell(GpuEvent("contradiction", "0", "a"))
        news.tell(GpuEvent("xid", "0", "b", code=31))
    news.tell(GpuEvent("xid", "0", "c", code=79))
    assert [(e.kind, e.code) for e in news.take()] == [
        ("contradiction", None), ("xid", 31), ("xid", 79),
    ]  # fmt: skip
    assert news.take() == []


class Counting:
    """A driver that answers every field with one growing number of 32 bits."""

    def __init__(self) -> None:
        self.sent = 0
        self.fails = False

    def call(self, _function: str, _handle: Any, wanted: list[tuple[int, int]]) -> list[Any]:
        if self.fails:
            raise Unknown("NVML took too long for this tick")
        number = self.sent % (1 << 32)
        answer = SimpleNamespace(
            nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=number)
        )  # fmt: skip
        return [answer] * len(wanted)

    def get(self, *_words: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("generation", "every", "is_known"),
    [(4, 0.1, True), (4, 0.5, False), (5, 0.06, True), (5, 0.1, False), (3, 0.25, True),
     (None, 0.1, False)],
)  # fmt: skip
def test_a_counter_that_may_begin_anew_twice_is_no_rate(
    generation: int | None, every: float, *, is_known: bool
) -> None:
    link = pcie.limit(generation, 16)
    driver, reading = Counting(), Reading()
    fields = Fields(cast("Nvml", driver), None, link)
    for tick in range(4):
        reading = Reading()
        fields.read(tick * every, reading)
        driver.sent += int(14e9 * every)
    if is_known:
        assert reading.values[m.GPU_PCIE_RX] == pytest.approx(14e9, rel=0.01)
    else:
        assert reading.unknown[m.GPU_PCIE_RX] == WRAPS


def test_after_ticks_without_an_answer_a_counter_may_have_begun_anew() -> None:
    driver, reading = Counting(), Reading()
    fields = Fields(cast("Nvml", driver), None, pcie.limit(2, 8))
    for tick in range(6):
        reading, driver.fails = Reading(), 1 < tick < 5
        fields.read(tick * 0.4, reading)
        driver.sent += int(3.8e9 * 0.4)
    assert reading.unknown[m.GPU_PCIE_RX] == WRAPS

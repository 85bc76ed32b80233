"""The energy of a whole recording: by the counter, by power, or unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core import prices
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render import jsonl
from whyidle.monitor.render.plain import summary_page
from whyidle.monitor.runs.summary import RunSummary, summarise
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import NewRun, Writer

START_MS = 1_700_000_000_000
COUNTED = {"steps": 500, "source": "optimizer"}


def recorded(folder: Path, *cards: dict[Metric, float], owned: tuple[str, ...]) -> RunSummary:
    """Record an hour in two ticks; the last of each counter is what it holds at the end."""
    entry = {
        "pid": 7, "start_ticks": 70, "rank": None, "method": "run", "inside": True,
        "stops_ms": [], "refused": None, "next_step": None, "counted": COUNTED,
    }  # fmt: skip
    path = folder / "whyidle.db"
    with Writer.open(path) as writer:
        info = {"processes": [entry], "gpus": list(owned)}
        run = writer.begin_run(NewRun(started_ms=START_MS, info=info))
        ids = [writer.add_gpu(run, idx=str(i), name="NVIDIA H100") for i in range(len(cards))]
        for moment in (START_MS, START_MS + 3_600_000):
            gpus = {i: Reading(dict(values)) for i, values in zip(ids, cards, strict=True)}
            rows = {Scope.GPU: gpus, Scope.MONITOR: {run: Reading({m.SELF_CPU: 0.01})}}
            writer.append(run, Tick(moment, rows))
    return summarise(path, "last")


@pytest.fixture(autouse=True)
def no_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (prices.KWH, prices.GPU_HOUR, prices.CURRENCY):
        monkeypatch.delenv(name, raising=False)


def test_the_gpus_of_the_job_by_their_counters_or_their_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter, power, other = {m.GPU_ENERGY: 1.8e6}, {m.GPU_POWER: 500.0}, {m.GPU_ENERGY: 9e9}
    summary = recorded(tmp_path, counter, power, other, owned=("0", "1"))
    found = jsonl.summary_object(summary).energy
    assert found.joules == pytest.approx(3.6e6)
    assert found.joules_per_step == pytest.approx(7200.0)
    assert found.gpu_hours == pytest.approx(2.0)
    assert found.unknown == {"money": prices.NO_PRICE}
    monkeypatch.setenv(prices.KWH, "0.3")
    monkeypatch.setenv(prices.GPU_HOUR, "2")
    monkeypatch.setenv(prices.CURRENCY, "EUR")
    assert jsonl.summary_object(summary).energy.money == pytest.approx(0.3 + 4.0)
    (line,) = (x for x in summary_page(summary).splitlines() if x.startswith("  energy"))
    assert line == "  energy   3.6 MJ, 7.2 kJ a step, 4.30 EUR, in 2 GPU hours"


def test_one_gpu_without_power_leaves_the_whole_unknown(tmp_path: Path) -> None:
    summary = recorded(tmp_path, {m.GPU_ENERGY: 1.8e6}, {m.GPU_UTILISATION: 0.5}, owned=("0", "1"))
    found = jsonl.summary_object(summary).energy
    assert found.joules is None
    assert "neither energy nor power" in found.unknown["joules"]
    assert "  energy" not in summary_page(summary)


def test_a_job_without_a_gpu_has_none(tmp_path: Path) -> None:
    found = jsonl.summary_object(recorded(tmp_path, owned=()))
    assert found.energy.joules is None
    assert found.energy.unknown["money"] == "no GPU of the job was read"
    # It was not diagnosed here.
    assert found.overhead is None
    jsonl.line(found)


def test_the_summary_says_what_traces_cost(tmp_path: Path) -> None:
    summary = recorded(tmp_path, owned=())
    diagnosis = as_json(diagnose(Window("run 1", "run")))
    cost = structs.replace(diagnosis.overhead, traces=3, traces_held_s=0.041)
    found = replace(summary, diagnosis=structs.replace(diagnosis, overhead=cost))
    assert ", 41.0 ms for the last 3 traces" in summary_page(found)
    assert jsonl.summary_object(found).overhead == cost
    assert "traces" not in summary_page(replace(summary, diagnosis=diagnosis))

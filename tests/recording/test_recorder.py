"""A recording in this process, with what a machine does to it over a week."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.recording.benches import Bench, Job, target
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.recording import recorder as module
from whyidle.monitor.recording import session as session_module
from whyidle.monitor.recording.meter import CPU_BUDGET_CORES, JUDGED_OVER_SECONDS, Meter
from whyidle.monitor.recording.recorder import Recorder, Wanted
from whyidle.monitor.recording.sampler import Sampler
from whyidle.monitor.recording.session import Session
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.store import Reader


def test_a_clock_that_leaps_ahead_is_followed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bench.tick()
    real = time.time_ns
    monkeypatch.setattr(module.time, "time_ns", lambda: real() + 3_600_000_000_000)
    after = bench.tick()
    assert after.ts_ms - before.ts_ms >= 3_600_000
    assert bench.events() == ["clock_leapt"]
    assert after.elapsed - before.elapsed < 60


def test_a_clock_that_is_set_back_does_not_fold_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bench.tick()
    real = time.time_ns
    monkeypatch.setattr(module.time, "time_ns", lambda: real() - 3_600_000_000_000)
    assert bench.tick().ts_ms > before.ts_ms
    assert bench.events() == []


def test_a_monitor_that_stood_still_says_so_and_blames_no_clock(bench: Bench) -> None:
    bench.tick()
    assert bench.recorder._tick_at is not None
    bench.recorder._tick_at -= 20
    assert "stood still for 19 s" in bench.tick().notes[0]
    assert bench.events() == ["stood_still"]
    assert not bench.tick().notes


def test_too_dear_a_monitor_does_less(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Meter, "over_budget", lambda _: 0.5)
    snapshot = bench.tick()
    assert bench.sampler.period == 2.0
    assert "too much" in snapshot.notes[0]
    assert bench.events() == ["backed_off"]


def test_the_meter_judges_a_while_and_not_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([0.0, 2.0, 2.0 + 2 * CPU_BUDGET_CORES * JUDGED_OVER_SECONDS])
    monkeypatch.setattr("time.process_time", lambda: next(spent))
    meter = Meter()
    meter.read(0.0, 0)
    meter.read(1.0, 0)
    assert meter.over_budget() is None
    meter.read(JUDGED_OVER_SECONDS, 0)
    assert meter.over_budget() == pytest.approx(2 * CPU_BUDGET_CORES + 2 / JUDGED_OVER_SECONDS)


class Counting:
    """A screen that counts, and fails as it is told."""

    def __init__(self) -> None:
        self.seen = 0

    def tick(self, snapshot: Snapshot) -> None:
        self.seen += 1

    def close(self) -> None:
        raise OSError(5, "the terminal has gone")


def broken_ticks(monkeypatch: pytest.MonkeyPatch, which: range) -> None:
    real, count = Recorder.tick, iter(range(10**6))

    def tick(self: Recorder, sampler: Sampler) -> Any:
        if next(count) in which:
            raise ValueError("odd line")
        return real(self, sampler)

    monkeypatch.setattr(Recorder, "tick", tick)


def test_a_tick_that_fails_does_not_end_the_recording(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_ticks(monkeypatch, range(1, 3))
    screen = Counting()
    told = Session(tmp_path / DATABASE, screen).record(Wanted(target(job), hz=10), seconds=0.75)
    assert told.run.end_reason == "time limit"
    assert screen.seen >= 4
    assert [e.kind for e in told.events] == ["tick_failed"]


def test_ticks_that_only_fail_end_it_and_it_is_ended(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_ticks(monkeypatch, range(10**6))
    monkeypatch.setattr(session_module, "MOST_FAILURES", 3)
    with pytest.raises(ValueError, match="odd line"):
        Session(tmp_path / DATABASE, Counting()).record(Wanted(target(job), hz=10))
    with Reader.open(tmp_path / DATABASE) as reader:
        assert reader.runs()[0].end_reason == "recorder failed"

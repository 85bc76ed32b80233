"""A recording in this process, with what a machine does to it over a week."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.recording.benches import Bench, Job, target
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.recording import recorder as module
from whyidle.monitor.recording.outside import CPU_BUDGET_CORES, JUDGED_OVER_SECONDS, Overhead
from whyidle.monitor.recording.requests import Wanted
from whyidle.monitor.recording.run_metadata import RunMetadata
from whyidle.monitor.recording.session import Session
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.store import Writer


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
    assert bench.recorder._outside.overhead._tick_at is not None
    bench.recorder._outside.overhead._tick_at -= 20
    assert "stood still for 19 s" in bench.tick().notes[0]
    assert bench.events(stops=True) == ["stood_still"]
    assert not bench.tick().notes


def test_too_dear_a_monitor_does_less(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Overhead, "over_budget", lambda _: 0.5)
    snapshot = bench.tick()
    assert bench.sampler.period == 2.0
    assert "too much" in snapshot.notes[0]
    assert bench.events() == ["backed_off"]


def test_the_overhead_is_judged_over_a_while_and_not_at_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spent = iter([0.0, 2.0, 2.0 + 2 * CPU_BUDGET_CORES * JUDGED_OVER_SECONDS])
    monkeypatch.setattr("time.process_time", lambda: next(spent))
    overhead = Overhead()
    overhead.read(0.0, 0)
    overhead.read(1.0, 0)
    assert overhead.over_budget() is None
    overhead.read(JUDGED_OVER_SECONDS, 0)
    assert overhead.over_budget() == pytest.approx(2 * CPU_BUDGET_CORES + 2 / JUDGED_OVER_SECONDS)


class Counting:
    """A screen that counts, and fails as the test sets it."""

    def __init__(self) -> None:
        self.seen = 0

    def tick(self, snapshot: Snapshot) -> None:
        self.seen += 1

    def close(self) -> None:
        raise OSError(5, "the terminal has gone")


class Broken(Counting):
    """A screen with a defect."""

    def tick(self, snapshot: Snapshot) -> None:
        super().tick(snapshot)
        raise ZeroDivisionError("odd figure")


def test_a_screen_that_fails_does_not_end_the_recording(job: Job, tmp_path: Path) -> None:
    screen = Broken()
    summary = Session(tmp_path / DATABASE, screen).record(Wanted(target(job), hz=10), seconds=0.5)
    assert summary.run.end_reason == "time limit"
    assert screen.seen >= 3
    (event,) = summary.events
    assert (event.kind, "screen" in event.text) == ("tick_failed", True)


def test_a_recording_that_cannot_begin_closes_what_it_has(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunMetadata, "gpus", lambda *_: 1 / 0)
    session = Session(tmp_path / DATABASE, Counting())
    with pytest.raises(ZeroDivisionError):
        session.record(Wanted(target(job)))
    with Writer.open(tmp_path / DATABASE) as writer:
        assert writer.trouble is None

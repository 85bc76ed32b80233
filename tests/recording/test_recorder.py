"""A recording in this process, with what a machine does to it over a week."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.recording.benches import Bench, Job, target
from whyidle.monitor.control.server import Server
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.recording import recorder as module
from whyidle.monitor.recording.outside import CPU_BUDGET_CORES, JUDGED_OVER_SECONDS, Overhead
from whyidle.monitor.recording.requests import Wanted
from whyidle.monitor.recording.run_metadata import RunMetadata
from whyidle.monitor.recording.session import Session
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.store import Reader, Writer


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
    assert "was stopped for 19 s" in bench.tick().notes[0]
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


def test_an_exit_code_that_was_seen_outlives_a_defect_in_finding_the_cause(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(job, tmp_path / DATABASE)
    bench.tick()
    job.kill()
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    assert bench.recorder.tick(bench.sampler) is None
    monkeypatch.setattr(bench.recorder._outside._job_end, "_oom_kills", lambda: 1 / 0)
    bench.recorder.end(None)
    bench.waker.close()
    with Reader.open(bench.path) as reader:
        run = reader.find("1")
    assert (run.end_reason, run.exit_code) == ("job ended", -signal.SIGKILL)


@pytest.mark.parametrize("fails", ["end_run", "control"])
def test_an_end_that_fails_closes_everything_all_the_same(
    fails: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "end_run", lambda *_: 1 / 0) if fails == "end_run" else None
    session = Session(tmp_path / DATABASE, Counting())
    closed: list[str] = []
    for of, name in ((Writer, "writer"), (Server, "control")):

        def close(self: object, real: Any = of.close, name: str = name) -> None:
            closed.append(name)
            real(self)
            if name == fails:
                raise ZeroDivisionError

        monkeypatch.setattr(of, "close", close)
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(ZeroDivisionError):
        session.record(Wanted(target(job)), 0.1, stop_on=(signal.SIGUSR1,))
    assert closed == ["control", "writer"]
    assert signal.getsignal(signal.SIGUSR1) == before


class Stuck(Counting):
    """A screen with a defect in its end."""

    def close(self) -> None:
        raise ZeroDivisionError("odd terminal")


def test_a_screen_that_cannot_close_does_not_keep_a_recording_from_its_end(
    job: Job, tmp_path: Path
) -> None:
    with pytest.raises(ZeroDivisionError):
        Session(tmp_path / DATABASE, Stuck()).record(Wanted(target(job)), 0.1)
    with Reader.open(tmp_path / DATABASE) as reader:
        assert reader.find("1").end_reason == "time limit"

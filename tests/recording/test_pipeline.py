"""A defect of ours costs its part of a tick: never the tick, the other rows, or the run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.recording.benches import Bench, Job
from whyidle.monitor.app.doctor import examine
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.defects import LOG, _Silent, logged
from whyidle.monitor.core.reading import FAILED, Reading
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.processes.job_end import JobEnd
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.tree import Tree
from whyidle.monitor.recording import faults
from whyidle.monitor.recording.agent_manager import AgentManager
from whyidle.monitor.recording.faults import Faults
from whyidle.monitor.recording.journal import Journal
from whyidle.monitor.recording.outside import Overhead
from whyidle.monitor.recording.rows import Rows
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.recording.traces import Traces
from whyidle.monitor.runs.summary import summarise
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.host import HostProbe
from whyidle.monitor.sources.news import GpuEvent
from whyidle.monitor.store import Reader, Writer
from whyidle.monitor.store.records import Event

TICKS = 12
# Where each stage does its work.
STAGES: dict[str, tuple[type, str]] = {
    "processes": (Tree, "refresh"),
    "agents": (AgentManager, "tick"),
    "host": (HostProbe, "host"),
    "job": (HostProbe, "job"),
    "traces": (Traces, "tick"),
    "findings": (Faults, "tick"),
    "upkeep": (Overhead, "over_budget"),
}
WHEN: dict[str, Callable[[int], bool]] = {
    "always": lambda _: True,
    "once": lambda n: n == 3,
    "every second time": lambda n: n % 2 == 0,
}


def breaks(
    monkeypatch: pytest.MonkeyPatch, at: tuple[type, str], when: Callable[[int], bool]
) -> Callable[[], int]:
    """Have a method fail at some of its calls; returns how often it has."""
    owner, name = at
    real, calls, failed = getattr(owner, name), iter(range(10**6)), [0]

    def broken(*arguments: Any, **named: Any) -> Any:
        if when(next(calls)):
            failed[0] += 1
            raise ValueError("odd line")
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, broken)
    return lambda: failed[0]


def ticks(bench: Bench, number: int) -> list[Snapshot]:
    """Tick so often, each in a millisecond of its own."""
    shown = []
    for _ in range(number):
        time.sleep(0.002)
        shown.append(bench.tick())
    return shown


def stored(bench: Bench) -> list[Event]:
    with Reader.open(bench.path) as reader:
        return list(reader.events(bench.recorder.run))


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails_costs_its_part_alone(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, when: str
) -> None:
    bench = Bench(job, tmp_path / "whyidle.db")
    failed = breaks(monkeypatch, STAGES[stage], WHEN[when])
    shown = ticks(bench, TICKS)
    assert failed() > 0
    assert [s.ticks for s in shown] == list(range(1, TICKS + 1))
    # What the other stages found is stored; what is missing has a reason.
    if stage != "host":
        assert all(s.host.get(m.HOST_CPU) is not None for s in shown[1:])
    if stage in {"job", "processes"}:
        assert {s.job.unknown.get(m.JOB_CPU) == FAILED for s in shown} >= {True}
    assert bench.events().count("tick_failed") == 1
    bench.recorder.end("done")
    assert logged(tmp_path) == {stage: failed()}
    assert "odd line" in (tmp_path / LOG).read_text()
    run_summary = summarise(tmp_path / "whyidle.db", str(bench.recorder.run))
    assert run_summary.ticks == TICKS
    assert run_summary.defects == {stage: failed()}


def test_an_xid_that_came_with_a_row_that_cannot_be_built_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver reports it once, and then nothing does for ten minutes."""
    probe = bench.recorder._probe
    gpu = SimpleNamespace(facts=GpuFacts("0", "H100"))
    came: Iterator[list[GpuEvent]] = iter([[], [GpuEvent("xid", "0", "XID 79 on GPU 0.", code=79)]])
    monkeypatch.setattr(probe, "gpus", [gpu])
    monkeypatch.setattr(probe, "read", lambda _: {"0": GpuReading(Reading({m.GPU_POWER: 71.0}))})
    monkeypatch.setattr(probe, "events", lambda: next(came, []))
    # In the second tick neither its row can be built nor, at first, the event be stored.
    breaks(monkeypatch, (Rows, "gpus"), lambda n: n == 1)
    breaks(monkeypatch, (Journal, "_gpu"), lambda n: n == 0)
    shown = ticks(bench, 3)
    assert [[e.text for e in s.events] for s in shown] == [[], [], ["XID 79 on GPU 0."]]
    assert [s.gpus["0"].reading.get(m.GPU_POWER) for s in shown] == [71.0] * 3
    assert sorted(bench.events()) == ["tick_failed", "tick_failed", "xid"]


def test_what_still_waits_at_the_end_is_stored_with_its_own_time(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(job, tmp_path / "whyidle.db")
    came: Iterator[list[GpuEvent]] = iter([[GpuEvent("xid", "0", "XID 79 on GPU 0.", code=79)]])
    gpu = SimpleNamespace(facts=GpuFacts("0", "H100"))
    monkeypatch.setattr(bench.recorder._probe, "gpus", [gpu])
    monkeypatch.setattr(bench.recorder._probe, "read", lambda _: {})
    monkeypatch.setattr(bench.recorder._probe, "events", lambda: next(came, []))
    breaks(monkeypatch, (Journal, "_gpu"), lambda n: n < 2)
    shown = ticks(bench, 2)
    bench.recorder.end("done")
    assert [s.events for s in shown] == [(), ()]
    assert [e.ts_ms for e in stored(bench) if e.kind == "xid"] == [shown[0].ts_ms]


LAST: dict[str, tuple[type, str]] = {
    "traces at the end": (Traces, "close"),
    "agents at the end": (AgentManager, "leave"),
    "run at the end": (AgentManager, "last_members"),
    "gpu events at the end": (Journal, "of_gpus"),
    "job events at the end": (Faults, "take_events"),
    "rows at the end": (AgentManager, "readings"),
    "ending": (JobEnd, "reason"),
    "gpus at the end": (GpuProbe, "close"),
}


@pytest.mark.parametrize("step", LAST)
def test_a_step_of_the_end_that_fails_costs_itself_alone(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    bench = Bench(job, tmp_path / "whyidle.db")
    ticks(bench, 2)
    taken: list[str] = []
    for each, (owner, name) in LAST.items():
        real = getattr(owner, name)

        def noted(*arguments: Any, each: str = each, real: Any = real, **named: Any) -> Any:
            taken.append(each)
            if each == step:
                raise ValueError("odd line")
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)
    bench.recorder.end(None)
    assert set(taken) == set(LAST)
    assert logged(tmp_path) == {step: 1}
    run_summary = summarise(tmp_path / "whyidle.db", str(bench.recorder.run))
    assert run_summary.defects == {step: 1}
    assert (run_summary.run.end_reason or "").startswith("job ended")


def test_a_defect_that_lasts_is_not_written_to_the_run_at_each_tick(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(job, tmp_path / "whyidle.db")
    breaks(monkeypatch, (HostProbe, "host"), lambda _: True)
    written: list[object] = []
    real = Writer.describe_run

    def describe(writer: Writer, run: int, **row: Any) -> Any:
        written.append(row.get("info", {}).get("defects"))
        return real(writer, run, **row)

    monkeypatch.setattr(Writer, "describe_run", describe)
    ticks(bench, TICKS)
    assert [each for each in written if each] == [{"host": 1}]
    bench.recorder.end("done")
    assert written[-1] == {"host": TICKS}


def test_a_process_that_cannot_be_read_costs_its_own_row(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.tick()
    real = ProcFs.stat

    def odd(fs: ProcFs, pid: int) -> Any:
        if pid == bench.recorder.wanted.target.pid:
            raise ValueError("odd line")
        return real(fs, pid)

    monkeypatch.setattr(ProcFs, "stat", odd)
    snapshot = bench.tick()
    # It is taken to be as it was: that it has ended is seen elsewhere.
    assert snapshot.job_pids == {bench.recorder.wanted.target.pid}
    assert bench.events() == ["tick_failed"]


def test_a_diagnosis_that_fails_is_written_down(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(diagnose, "diagnose", lambda _: 1 / 0)
    while not logged(bench.path.parent):
        bench.tick()
    assert logged(bench.path.parent) == {"diagnosis": 1}


def test_the_doctor_says_how_many_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHYIDLE_STATE_DIR", str(tmp_path))
    (tmp_path / LOG).write_text(
        "2026-01-01 10:00:00 run 1: agents: ValueError: odd\nTraceback: gone\n"
        "2026-01-01 10:02:00 run 1: agents: ValueError: odd (9 times by now)\n"
        "2026-01-01 10:02:00 run 2: a process: ValueError: odd\n"
    )
    (check,) = [c for c in examine(None) if c.name == "recorder log"]
    assert check.state == "warn"
    assert "agents 9" in check.detail
    assert "a process 1" in check.detail
    assert str(tmp_path / LOG) in check.next_step


def test_a_log_that_cannot_be_written_is_no_defect(bench: Bench) -> None:
    (bench.path.parent / LOG).mkdir()
    bench.recorder.caught("screen", ValueError("odd"))
    snapshot: Snapshot = bench.tick()
    assert snapshot.ticks == 1
    assert bench.events() == ["tick_failed"]


def test_a_full_disk_costs_the_log_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> TextIOWrapper:
        return TextIOWrapper(Path("/dev/full").open("ab"))

    monkeypatch.setattr(_Silent, "_open", full)
    breaks(monkeypatch, (HostProbe, "host"), lambda _: True)
    assert [s.ticks for s in ticks(bench, 3)] == [1, 2, 3]
    assert bench.events() == ["tick_failed"]


class Speechless(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ValueError("not even that")


def test_an_error_that_cannot_say_what_it_is_costs_no_more(bench: Bench) -> None:
    bench.recorder.caught("screen", Speechless())
    assert bench.tick().ticks == 1


def test_the_log_is_ours_alone_and_no_link_is_followed(bench: Bench, tmp_path: Path) -> None:
    log = bench.path.parent / LOG
    log.symlink_to(tmp_path / "elsewhere")
    bench.recorder.caught("screen", ValueError("odd"))
    assert not (tmp_path / "elsewhere").exists()
    log.unlink()
    bench.recorder.caught("agents", ValueError("two\nlines"))
    assert log.stat().st_mode & 0o777 == 0o600
    assert logged(log.parent) == {"agents": 1}


@pytest.mark.parametrize("broken", [False, True])
def test_the_tick_that_sees_the_end_takes_the_exit_code(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, broken: bool
) -> None:
    """Its parent reaps it soon; and a job that has ended ends also a recording that is blind."""
    bench = Bench(job, tmp_path / "whyidle.db")
    bench.tick()
    job.kill()
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    if broken:
        breaks(monkeypatch, (Tree, "refresh"), lambda _: True)
    assert bench.recorder.tick(bench.sampler) is None
    assert bench.recorder._outside._job_end.code == -9
    bench.recorder.end(None)
    bench.waker.close()


def test_figures_of_processes_that_could_not_be_read_are_not_those_of_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks(bench, 2)
    breaks(monkeypatch, (Tree, "refresh"), lambda n: n == 0)
    (blind, seeing) = ticks(bench, 2)
    assert blind.job.get(m.JOB_PROCESSES) is None
    assert blind.job.unknown[m.JOB_RSS] == FAILED
    assert seeing.job.get(m.JOB_PROCESSES) == 1

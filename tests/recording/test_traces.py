"""Traces in a recording: of whom, when, what they put into it, and real ones of real jobs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands.test_trace_pid import LOOP, SOURCES
from tests.conftest import start_job
from tests.recording.seated import Caught
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.ranks import Rank
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording import traces as module
from whyidle.monitor.recording.clock import Sampler, Waker
from whyidle.monitor.recording.recorder import Recorder
from whyidle.monitor.recording.requests import Wanted
from whyidle.monitor.recording.snapshot import Member, Snapshot
from whyidle.monitor.recording.stats.agent_stats import STOPPED
from whyidle.monitor.recording.traces import Traces, in_order
from whyidle.monitor.recording.tracked_process import TrackedProcess
from whyidle.monitor.runs.summary import summarise
from whyidle.monitor.sources.gpu import GpuReading
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.sources.ownership import Owned
from whyidle.monitor.store import Reader, Writer
from whyidle.monitor.store.stored_traces import Kept
from whyidle.monitor.tracing.parser import Parser
from whyidle.monitor.tracing.space import Space
from whyidle.monitor.tracing.trace_summary import TraceSummary

KEY = ProcessKey(7, 7)
NOBODY = Owned(frozenset(), "no GPU is known", sure=False)


# Without a job -----------------------------------------------------------------------------------
def traces(store: Path) -> Traces:
    return Traces(
        KEY, store / DATABASE, 1, share=0.01, named_ms=lambda t: int(t * 1000), guard=Caught()
    )


def a_summary(**changes: Any) -> TraceSummary:
    found = TraceSummary(
        trace=1, key=KEY, rank=None, framework="jax", how="the agent", ts_ms=0, at=100.0,
        seconds=0.25, held_ns=None, format="xplane", budget={"slices": {}}, step_budget=None,
        steps={"count": 40, "median_ns": 5_000_000, "source": "repetition", "how": ""},
        kinds=("cpu",),
    )  # fmt: skip
    return replace(found, **changes)


def after(found: Traces, last: TraceSummary, now: float) -> tuple[Reading, Reading]:
    """Return what is put for the job and for the process, which report no steps themselves."""
    found._scheduler.last = last
    job = Reading(unknown={m.JOB_STEP_P50: "no steps seen"})
    process = Reading(unknown={m.PROCESS_STEP_P50: "no steps seen"})
    found.put_steps(now, job, {KEY: process})
    return job, process


def test_without_records_of_steps_those_of_a_trace_count(tmp_path: Path) -> None:
    job, process = after(traces(tmp_path), a_summary(), 160.0)
    assert job.get(m.JOB_STEP_P50) == 0.005
    assert process.get(m.PROCESS_STEP_P50) == 0.005
    assert job.unknown == process.unknown == {}


@pytest.mark.parametrize("rate", [3.0, 0.0])
def test_who_counts_steps_knows_better(tmp_path: Path, rate: float) -> None:
    found = traces(tmp_path)
    found._scheduler.last = a_summary()
    job = Reading({m.JOB_STEPS: rate}, {m.JOB_STEP_P50: "no step has ended lately"})
    found.put_steps(160.0, job, {})
    assert job.get(m.JOB_STEP_P50) is None


def test_of_who_is_stopped_a_trace_says_nothing(tmp_path: Path) -> None:
    found = traces(tmp_path)
    found._scheduler.last = a_summary()
    job = Reading(unknown=dict.fromkeys((m.JOB_STEPS, m.JOB_STEP_P50), STOPPED))
    found.put_steps(160.0, job, {})
    assert job.unknown[m.JOB_STEP_P50] == STOPPED


def member(key: ProcessKey = KEY, source: str | None = None) -> Member:
    values = {} if source is None else {m.PROCESS_STEPS: 3.0, m.PROCESS_STEP_P50: 0.3}
    return Member(key, None, "ptrace", reading=Reading(values), steps_source=source)


def test_where_the_time_of_a_step_comes_from_a_trace_its_process_says_so(tmp_path: Path) -> None:
    found = traces(tmp_path)
    found._scheduler.last = a_summary()
    members = found.sourced(160.0, (member(), member(source="optimizer"), member(ProcessKey(8, 8))))
    assert [x.steps_source for x in members] == ["trace", "optimizer", None]
    assert [x.reading.get(m.PROCESS_STEP_P50) for x in members] == [0.005, 0.3, None]


@pytest.mark.parametrize("last", [None, a_summary(at=-1000.0)])
def test_without_a_recent_trace_none_is_named_as_the_source(
    tmp_path: Path, last: TraceSummary | None
) -> None:
    found = traces(tmp_path)
    found._scheduler.last = last
    (only,) = found.sourced(160.0, [member()])
    assert only.steps_source is None
    assert only.reading.get(m.PROCESS_STEP_P50) is None


@pytest.mark.parametrize(
    "last",
    [
        a_summary(at=-1000.0),
        a_summary(steps={"count": 2, "median_ns": 5, "source": "repetition", "how": ""}),
        a_summary(steps={"count": 0, "median_ns": None, "source": "none", "how": "no steps"}),
    ],
)
def test_an_old_trace_or_one_without_steps_says_nothing(tmp_path: Path, last: TraceSummary) -> None:
    job, _ = after(traces(tmp_path), last, 160.0)
    assert job.get(m.JOB_STEP_P50) is None


def tracked(pid: int, rank: int | None = None, **changes: Any) -> TrackedProcess:
    who = Identity(
        key=ProcessKey(pid, pid), parent=1, name="python", command="", script="", user="me",
        python="3.11", frameworks={"torch": None}, container=None, state="S",
        rank=None if rank is None else Rank(rank, None, None, "torchrun"),
    )  # fmt: skip
    found = TrackedProcess(who.key, who, 0.0, entered=0.0, is_young=False)
    found.link = object()  # type: ignore[assignment]
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def pids(processes: list[TrackedProcess], now: float = 1000.0) -> list[int]:
    return [found.key.pid for found in in_order(processes, now)]


def test_the_first_rank_stands_for_all_and_a_launcher_comes_last() -> None:
    assert pids([tracked(1), tracked(2, 1), tracked(3, 0)]) == [3, 2, 1]


def test_of_processes_without_ranks_one_that_makes_steps_comes_first() -> None:
    steps = tracked(5)
    steps.agent_stats.latest.put(m.PROCESS_STEPS, 3.0, "")
    assert pids([tracked(4), steps]) == [5, 4]


def test_the_part_that_computes_comes_before_all_that_wait_for_it() -> None:
    front, engine, worker = tracked(4), tracked(5), tracked(6)
    engine.identity = replace(engine.identity, arguments=("VLLM::EngineCore",))
    # Turns of its loop, which only waits.
    engine.agent_stats.latest.put(m.PROCESS_STEPS, 3.0, "")
    worker.identity = replace(worker.identity, arguments=("VLLM::Worker_TP0",))
    assert pids([front, engine, worker]) == [6, 5, 4]
    worker.identity = replace(worker.identity, arguments=("python", "worker.py"))
    # Where it gives itself no title, its loop says what it is.
    worker.part = "worker"
    assert pids([front, engine, worker]) == [6, 5, 4]


@pytest.mark.parametrize(
    "changes", [{"link": None}, {"is_young": True}, {"is_stopped": True}, {"entered": 995.0}]
)
def test_who_is_not_inside_young_stopped_or_just_entered_is_not_traced(
    changes: dict[str, Any],
) -> None:
    assert pids([tracked(4, **changes), tracked(9)]) == [9]


@pytest.mark.parametrize(
    ("values", "sure", "low"),
    [
        ({m.GPU_UTILISATION: 0.3}, True, True),
        ({m.GPU_UTILISATION: 0.95}, True, False),
        ({m.GPU_UTILISATION: 0.95, m.GPU_SM_ACTIVITY: 0.2}, True, True),
        ({m.GPU_UTILISATION: 0.3}, False, None),
        ({}, True, None),
    ],
)
def test_what_a_gpu_says(values: dict[Metric, float], sure: bool, low: bool | None) -> None:
    gpus = {"0": GpuReading(Reading(values)), "1": GpuReading(Reading({m.GPU_UTILISATION: 0.0}))}
    assert module._low(gpus, Owned(frozenset({"0"}), "", sure=sure)) is low


def test_a_defect_of_ours_ends_traces_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = traces(tmp_path)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(found._scheduler, "tick", broken)
    for _ in range(3):
        found.tick(1.0, [], {}, NOBODY)
    (event,) = found.take_events()
    assert event.text == "Traces are off from now on (ZeroDivisionError: oops)."


# Of real jobs ------------------------------------------------------------------------------------
class Bench:
    """A recording of a real job, ticked by hand."""

    def __init__(self, job: subprocess.Popen[str], store: Path, **wanted: Any) -> None:
        stat = ProcFs().stat(job.pid)
        assert stat is not None
        self.store = store
        self.target = ProcessKey(job.pid, stat.start_ticks)
        self.recorder = Recorder(
            Wanted(Target(self.target), **wanted), Writer.open(store), GpuProbe(), "no GPU here"
        )
        self.waker = Waker(job.pid)
        self.sampler = Sampler(1.0, self.waker)

    def until(self, enough: Callable[[Snapshot], object], seconds: float = 60.0) -> Snapshot:
        deadline = time.monotonic() + seconds
        while True:
            snapshot = self.recorder.tick(self.sampler)
            assert snapshot is not None
            if enough(snapshot):
                return snapshot
            assert time.monotonic() < deadline, self.events()
            time.sleep(0.1)

    def events(self) -> list[str]:
        with Reader.open(self.store) as reader:
            return [e.text for e in reader.events(self.recorder.run)]

    def end(self) -> None:
        self.recorder.end("done")
        self.waker.close()


@contextmanager
def recorded(framework: str, store: Path, **wanted: Any) -> Iterator[Bench]:
    pytest.importorskip(framework)
    with start_job(SOURCES[framework] + LOOP) as job:
        bench = Bench(job, store, **wanted)
        try:
            yield bench
        finally:
            bench.end()
            said, _ = job.communicate("enough\n", timeout=60)
    assert job.returncode == 0
    assert said.startswith("threads")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "SETTLED_SECONDS", 0.0)
    return tmp_path / "state" / DATABASE


@pytest.mark.ptrace
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_job_that_nobody_measures_is_traced_once_and_the_budget_stands_in_its_run(
    framework: str, store: Path
) -> None:
    with recorded(framework, store) as bench:
        snapshot = bench.until(lambda s: s.has_new_trace)
        last = snapshot.traces
        assert last is not None
        assert last.framework == framework
        assert last.key == bench.target
        assert last.trouble is None
        assert sum(last.budget["slices"].values()) == last.budget["total_ns"] > 0
        assert snapshot.ts_ms - 60_000 < last.ts_ms <= snapshot.ts_ms
        (news,) = [e for e in snapshot.happened if e.kind == "trace_taken"]
        assert "by the agent" in news.text
        # Once is enough: the next tick brings none.
        after = bench.until(lambda s: s.ticks > snapshot.ticks)
        assert not after.has_new_trace
        assert after.traces is last
        if framework == "jax":
            assert after.job.get(m.JOB_STEP_P50) == last.steps["median_ns"] / 1e9
            assert [x.steps_source for x in after.members] == ["trace"]
    with Kept.open(store) as kept:
        (trace,) = kept.traces(bench.recorder.run)
    assert (trace.id, trace.ts_ms) == (last.trace, last.ts_ms)
    assert trace.path.exists()
    summary = summarise(store, "last")
    assert summary.trace is not None
    assert summary.trace["id"] == trace.id
    assert summary.trace["budget"] == last.budget


@pytest.mark.ptrace
@pytest.mark.parametrize("wanted", [{"trace_share": 0.0}, {"observe": True}])
def test_without_a_share_and_from_outside_there_are_none(
    store: Path, wanted: dict[str, Any]
) -> None:
    with recorded("torch", store, **wanted) as bench:
        inside = not wanted.get("observe")
        bench.until(lambda s: s.members and (s.members[0].method == "outside") != inside)
        snapshot = bench.until(lambda s: s.ticks > 20)
        assert snapshot.traces is None
    assert Space(store).files() == []


@pytest.mark.ptrace
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
        ('print(\'{"failed": "it needs more memory than it may have"}\')', "more memory"),
    ],
)
def test_a_reader_that_dies_is_an_event_and_the_recording_goes_on(
    store: Path, code: str, why: str
) -> None:
    with recorded("torch", store) as bench:
        taking = bench.recorder._traces._scheduler
        taking.parse = lambda order: Parser(order, (sys.executable, "-c", code))
        snapshot = bench.until(lambda s: any(e.kind == "trace_failed" for e in s.happened))
        (news,) = [e for e in snapshot.happened if e.kind == "trace_failed"]
        assert why in news.text
        assert bench.until(lambda s: s.ticks > snapshot.ticks).traces is None
    assert Space(store).files() == []

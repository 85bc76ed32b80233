"""Where the time of steps goes, over time: the parts add up, and waits are shown as they were."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.dashboard.gpu_jobs import job
from whyidle.dashboard.views import job as jobs
from whyidle.dashboard.views import time_range as spans
from whyidle.dashboard.views.causes import BY_COUNTERS, BY_TRACE, Causes, causes
from whyidle.dashboard.views.series import SeriesSource
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.store import NewRun, Reader, Writer

START_MS = 1_700_000_000_000


def of_last(path: Path) -> Causes:
    with Reader.open(path) as reader:
        run = reader.find("last")
        gpus = jobs.gpus(reader, run, everything=False)
        source = SeriesSource(reader, run.id, spans.of(reader, run, spans.ALL, 0))
        return causes(source, gpus.mine, jobs.device(run, has_gpus=bool(gpus.mine)))


def test_the_parts_of_each_moment_add_up_to_its_step(tmp_path: Path) -> None:
    made = job(tmp_path / DATABASE, gpus=2, seconds=120)
    made.end()
    found = of_last(tmp_path / DATABASE)
    assert found.is_of_steps
    with Reader.open(tmp_path / DATABASE) as reader:
        run = reader.find("last")
        source = SeriesSource(reader, run.id, spans.of(reader, run, spans.ALL, 0))
        steps = source.one(m.JOB_STEP_P50, run.id)
    for place, time in enumerate(found.times):
        whole = sum(column[place] or 0.0 for column in found.parts.values())
        wanted = dict(zip(steps.times, steps.values, strict=True))[time]
        assert whole == pytest.approx(wanted)
    assert Slice.IDLE_INPUT in found.parts
    assert Slice.COMPUTE in found.parts


def recorded(path: Path, job_of: dict[int, dict[m.Metric, float]]) -> None:
    end_s = START_MS / 1000 + len(job_of)
    with Writer.open(path, now=lambda: end_s) as writer:
        run = writer.begin_run(NewRun(started_ms=START_MS))
        for second, values in job_of.items():
            rows = {Scope.JOB: {run: Reading(values)}}
            writer.append(run, Tick(START_MS + 1000 * second, rows))
        writer.end_run(run, "stopped")


def test_what_was_not_due_at_a_tick_holds_on_until_the_next(tmp_path: Path) -> None:
    step, wait = {m.JOB_STEP_P50: 0.1}, {m.JOB_LOADER_WAIT: 0.5}
    recorded(tmp_path / DATABASE, {i: step | (wait if i % 3 == 0 else {}) for i in range(12)})
    assert of_last(tmp_path / DATABASE).parts[Slice.IDLE_INPUT] == [pytest.approx(0.05)] * 12


def test_what_is_gone_for_long_is_unknown_again(tmp_path: Path) -> None:
    step, wait = {m.JOB_STEP_P50: 0.1}, {m.JOB_LOADER_WAIT: 0.5}
    recorded(tmp_path / DATABASE, {i: step | (wait if i == 0 else {}) for i in range(20)})
    found = of_last(tmp_path / DATABASE)
    assert found.parts[Slice.IDLE_INPUT][-1] == 0
    assert found.parts[Slice.IDLE_UNKNOWN][-1] == pytest.approx(0.1)


def test_without_steps_the_shares_are_shown_and_why(tmp_path: Path) -> None:
    recorded(tmp_path / DATABASE, {i: {m.JOB_LOADER_WAIT: 0.5} for i in range(12)})
    found = of_last(tmp_path / DATABASE)
    assert not found.is_of_steps
    assert found.unknown
    assert found.parts[Slice.IDLE_INPUT] == [0.5] * 12


def test_of_nothing_nothing_is_shown(tmp_path: Path) -> None:
    recorded(tmp_path / DATABASE, {i: {m.JOB_CPU: 1.0} for i in range(3)})
    assert of_last(tmp_path / DATABASE).parts == {}


def traced(path: Path, at_s: int, job_of: dict[int, dict[m.Metric, float]], **ns: int) -> None:
    """Record a job, and keep a trace that was taken so many seconds after its start."""
    recorded(path, job_of)
    slices = dict.fromkeys(map(str, Slice), 0) | {str(Slice(part)): n for part, n in ns.items()}
    budget = {"total_ns": sum(ns.values()), "steps": 0, "slices": slices, "details": {}}
    answer = {
        "format": "xplane", "budget": budget, "step_budget": None, "window": None,
        "steps": {"count": 0}, "devices": [{"kind": "cpu", "index": "0"}],
    }  # fmt: skip
    taken = {"pid": 1, "how": "the agent", "rank": None, "held_ns": None}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO trace (run, ts_ms, format, path, header) VALUES (1, ?, 'xplane', '/x', ?)",
            (START_MS + 1000 * at_s, json.dumps({"answer": answer, "taken": taken})),
        )
    connection.close()


def test_after_a_trace_it_divides_what_the_counters_leave_unknown(tmp_path: Path) -> None:
    values = {i: {m.JOB_STEP_P50: 0.1, m.JOB_LOADER_WAIT: 0.5} for i in range(12)}
    traced(tmp_path / DATABASE, 6, values, compute=30, idle_dispatch=20, idle_input=50)
    found = of_last(tmp_path / DATABASE)
    assert found.parts[Slice.IDLE_INPUT] == [pytest.approx(0.05)] * 12
    assert list(found.parts[Slice.COMPUTE]) == [0] * 6 + [pytest.approx(0.03)] * 6
    assert list(found.parts[Slice.IDLE_DISPATCH]) == [0] * 6 + [pytest.approx(0.02)] * 6
    assert found.parts[Slice.IDLE_UNKNOWN][0] == pytest.approx(0.05)
    assert found.how == BY_TRACE


def test_a_trace_that_the_counters_contradict_divides_nothing(tmp_path: Path) -> None:
    values = {i: {m.JOB_STEP_P50: 0.1, m.JOB_LOADER_WAIT: 0.1} for i in range(12)}
    traced(tmp_path / DATABASE, 0, values, compute=10, idle_input=90)
    found = of_last(tmp_path / DATABASE)
    assert Slice.COMPUTE not in found.parts
    assert found.parts[Slice.IDLE_UNKNOWN] == [pytest.approx(0.09)] * 12
    assert found.how == BY_COUNTERS


def test_a_trace_says_nothing_of_moments_at_which_nobody_measured(tmp_path: Path) -> None:
    values = {i: {m.JOB_CPU: 1.0} for i in range(12)}
    traced(tmp_path / DATABASE, 0, values, compute=100)
    assert of_last(tmp_path / DATABASE).parts == {}


def test_the_parts_add_up_also_where_a_trace_divides_them(tmp_path: Path) -> None:
    values = {i: {m.JOB_STEP_P50: 0.1, m.JOB_LOADER_WAIT: 0.05 * i} for i in range(12)}
    traced(tmp_path / DATABASE, 0, values, compute=50, idle_input=30, idle_unknown=20)
    found = of_last(tmp_path / DATABASE)
    for place in range(12):
        whole = sum(column[place] or 0.0 for column in found.parts.values())
        assert whole == pytest.approx(0.1)

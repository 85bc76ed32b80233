"""The corner about ourselves: what we cost, how old each source is, what went wrong."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.gpu_jobs import job
from whyidle.dashboard.views import marks
from whyidle.dashboard.views import time_range as spans
from whyidle.dashboard.views.health import Health, health
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import NewRun, Reader, Writer


def of_last(path: Path) -> Health:
    with Reader.open(path) as reader:
        return health(reader, reader.find("last"))


def test_our_own_cost_is_shown(tmp_path: Path) -> None:
    job(tmp_path / DATABASE, seconds=30).end()
    cost = of_last(tmp_path / DATABASE).cost
    assert cost == {
        "CPU": "0.4% of a core", "memory": "40.0 MiB", "one sampling pass": "3.0 ms",
        "NVML": "1.0 ms", "missed ticks": "0",
    }  # fmt: skip


def test_a_source_that_ceased_grows_old(tmp_path: Path) -> None:
    made = job(tmp_path / DATABASE, gpus=1, seconds=90, lost=70)
    made.end()
    ages = of_last(tmp_path / DATABASE).ages
    assert ages["system"] == "0 s ago"
    # What is lost has no value now, however old.
    assert ages["GPU driver"] == "no values"


def test_a_recorder_that_ticks_is_not_silent_and_one_that_does_not_is(tmp_path: Path) -> None:
    ticks = job(tmp_path / "ticks" / DATABASE, seconds=30)
    silent = job(tmp_path / "silent" / DATABASE, seconds=30, ago=40)
    assert of_last(tmp_path / "ticks" / DATABASE).silent_s is None
    silent_s = of_last(tmp_path / "silent" / DATABASE).silent_s
    assert silent_s is not None
    assert silent_s >= 40
    ticks.end()
    silent.end()
    assert of_last(tmp_path / "silent" / DATABASE).silent_s is None


def begun(path: Path, info: dict[str, Any]) -> Health:
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(info=info))
        writer.event(run, "finding", "Found: something.", severity="high")
        writer.event(run, "retrace_storm", "Compiled again and again.", severity="medium")
        writer.event(run, "tick_failed", "A tick failed.", severity="medium")
        writer.end_run(run, "stopped")
    return of_last(path)


def test_our_trouble_is_shown_and_that_of_the_job_is_not_ours(tmp_path: Path) -> None:
    health = begun(tmp_path / DATABASE, {})
    assert [event.text for event in health.trouble] == ["A tick failed."]
    assert health.agent == "inside no process"


def test_an_agent_that_is_refused_says_why_and_what_to_type(tmp_path: Path) -> None:
    entry = {"pid": 7, "inside": False, "refused": "It may not.", "next_step": "sudo it"}
    health = begun(tmp_path / DATABASE, {"processes": [entry, {"pid": 8, "inside": True}]})
    assert health.agent == "inside 1 of 2 processes"
    assert (health.agent_why, health.agent_step) == ("It may not.", "sudo it")


def test_a_job_that_nobody_entered_says_why(tmp_path: Path) -> None:
    refused = {"what": "No framework is loaded.", "next_step": "Wait."}
    health = begun(tmp_path / DATABASE, {"not_entered": refused})
    assert (health.agent_why, health.agent_step) == ("No framework is loaded.", "Wait.")


def test_marks_and_news_are_of_the_span_and_quiet_events_are_none(tmp_path: Path) -> None:
    made = job(tmp_path / DATABASE, gpus=1, seconds=120, lost=30)
    made.writer.event(made.run, "stacks", "Where it was.", ts_ms=made.ts_ms - 5000)
    made.end()
    with Reader.open(tmp_path / DATABASE) as reader:
        run = reader.find("last")
        whole = spans.of(reader, run, spans.ALL, 0)
        last = spans.of(reader, run, "1m", 0)
        assert [m["kind"] for m in marks.marks(reader, run.id, whole)] == ["compiled", "GPU lost"]
        assert [m["kind"] for m in marks.marks(reader, run.id, last)] == ["GPU lost"]
        news = marks.news(reader, run.id, whole)
    assert [event.kind for event in news.events] == ["gpu_lost", "compile"]
    assert news.more == 0


def test_marks_and_news_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(tmp_path / DATABASE, gpus=1, seconds=60).end()
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    asked = []
    events = Reader.events
    monkeypatch.setattr(Reader, "events", lambda *a, **k: asked.append(a) or events(*a, **k))
    with Reader.open(tmp_path / DATABASE) as reader:
        run = reader.find("last")
        whole = spans.of(reader, run, spans.ALL, 0)
        assert marks.marks(reader, run.id, whole)
        assert marks.news(reader, run.id, whole).events
    assert len(asked) == 1


def test_trouble_of_long_ago_is_shown_however_much_happens_in_the_job(tmp_path: Path) -> None:
    made = job(tmp_path / DATABASE, gpus=1, seconds=60)
    made.writer.event(made.run, "tick_failed", "A tick failed.", severity="low", ts_ms=1000)
    for i in range(100):
        made.writer.event(made.run, "finding", f"Found {i}.", severity="high")
    made.end()
    assert [each.text for each in of_last(tmp_path / DATABASE).trouble] == ["A tick failed."]

"""One trace after another of a recording, from request to result, without a job."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.commands.tracefiles import kineto
from tests.tracing.conftest import until
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.store.stored_traces import Kept
from whyidle.monitor.tracing.parser import Parser
from whyidle.monitor.tracing.policy import MOST_REFUSALS, Policy
from whyidle.monitor.tracing.scheduler import FAILED, GIVEN_UP, TAKEN, Candidate, TraceScheduler
from whyidle.monitor.tracing.space import Space, of_run
from whyidle.monitor.tracing.taken import Taken

A, B = ProcessKey(10, 1), ProcessKey(20, 2)


@dataclass
class FakeWay:
    """Answers as it was told to."""

    refusal: str | None = None
    result: Taken | str | None = None
    name: str = "a test"
    asked: list[float] = field(default_factory=list)
    is_closed: bool = False

    def ask(self, seconds: float) -> str | None:
        self.asked.append(seconds)
        return self.refusal

    def poll(self) -> Taken | str | None:
        return self.result

    def close(self) -> None:
        self.is_closed = True


class Bench:
    def __init__(self, store: Path) -> None:
        self.store = store
        with Writer.open(store) as writer:
            self.run = writer.begin_run(NewRun())
            writer.end_run(self.run, "done")
        self.taking = TraceScheduler(
            store, self.run, Policy(0.01), lambda moment: int(moment * 1000)
        )
        self.now = 1000.0
        self.news: list[JobEvent] = []

    def tick(self, *candidates: Candidate, starved: bool | None = True) -> None:
        self.now += 1.0
        self.news += self.taking.tick(self.now, candidates, starved=starved)

    def taken(self, text: str | None = None) -> Taken:
        handle, path = Space(self.store).create(of_run(self.run), "torch")
        os.close(handle)
        path.write_text(json.dumps(kineto()) if text is None else text)
        now = time.monotonic_ns()
        return Taken("torch", path, now - 250_000_000, now, time.time_ns(), 9_000_000, "a test")

    def until_news(self, *candidates: Candidate) -> JobEvent:
        def attempt() -> JobEvent | None:
            self.now -= 1.0
            self.tick(*candidates)
            return self.news[-1] if self.news else None

        return until(attempt)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("whyidle.monitor.tracing.space.SPARE_BYTES", 0)
    return Bench(tmp_path / "state" / "whyidle.db")


def one(key: ProcessKey, way: FakeWay, step: float | None = None) -> Candidate:
    return Candidate(key, 3, step, lambda: way)


def test_a_trace_is_asked_for_fetched_understood_and_kept(bench: Bench) -> None:
    way = FakeWay()
    who = one(A, way, step=0.2)
    bench.tick(who)
    assert way.asked == [pytest.approx(0.8)]
    bench.tick(who)
    assert bench.taking.last is None
    way.result = taken = bench.taken()
    news = bench.until_news(who)
    summary = bench.taking.last
    assert summary is not None
    assert bench.taking.is_new
    assert (summary.key, summary.rank, summary.framework, summary.how) == (A, 3, "torch", "a test")
    assert summary.ts_ms == taken.began_ns // 1_000_000
    assert summary.seconds == pytest.approx(0.25)
    assert summary.steps["count"] == 4
    assert summary.kinds == ("gpu",)
    assert summary.window is not None
    assert (summary.window["ns"], summary.window["asked_ns"]) == (250_000_000, 800_000_000)
    assert summary.window["step_ns"] == 200_000_000
    assert news.kind == TAKEN
    assert "the job paused for 9 ms" in news.text
    assert "input" in news.text
    assert news.data is not None
    assert news.data["id"] == summary.trace
    assert news.data["budget"]["slices"] == summary.budget["slices"]
    json.dumps(news.data)
    with Kept.open(bench.store) as kept:
        (trace,) = kept.traces(bench.run)
        assert (trace.ts_ms, trace.path) == (summary.ts_ms, taken.path)
    assert way.is_closed
    bench.tick(who)
    assert not bench.taking.is_new
    assert bench.taking.last is summary
    # Half a minute and its share of the time have not passed.
    assert len(way.asked) == 1


def test_a_busy_gpu_is_looked_at_once(bench: Bench) -> None:
    way = FakeWay()
    bench.tick(one(A, way), starved=False)
    assert len(way.asked) == 1
    way.result = bench.taken()
    until(lambda: bench.tick(one(A, way), starved=False) or bench.taking.is_new or None)
    bench.now += 1e6
    bench.tick(one(A, way), starved=False)
    assert len(way.asked) == 1


def test_only_one_process_is_asked_at_a_time(bench: Bench) -> None:
    first, second = FakeWay(), FakeWay()
    for _ in range(5):
        bench.tick(one(A, first), one(B, second))
    assert len(first.asked) == 1
    assert second.asked == []


@pytest.mark.parametrize("way", [FakeWay("it rains"), FakeWay(result="it rains")])
def test_a_way_that_fails_is_dropped_and_the_reason_is_shown(bench: Bench, way: FakeWay) -> None:
    bench.tick(one(A, way))
    bench.tick(one(A, way))
    assert way.is_closed
    assert [news.text for news in bench.news] == ["No trace of process 10: it rains."]
    assert len(way.asked) == 1


def test_the_next_process_is_asked_where_the_first_refuses(bench: Bench) -> None:
    second = FakeWay()
    bench.tick(one(A, FakeWay("no")), one(B, second))
    bench.tick(one(A, FakeWay("no")), one(B, second))
    assert len(second.asked) == 1


def test_a_refusal_is_shown_once_and_at_last_that_no_more_is_asked(bench: Bench) -> None:
    ways = []
    for _ in range(1000):
        way = FakeWay("the job profiles itself")
        ways.append(way)
        bench.tick(one(A, way))
    assert sum(len(way.asked) for way in ways) == MOST_REFUSALS
    assert [n.kind for n in bench.news] == [FAILED, GIVEN_UP]
    assert bench.news[0].text == "No trace of process 10: the job profiles itself."
    assert "monitor trace 10" in bench.news[1].text


def test_a_trace_that_cannot_be_parsed_goes_and_is_reported(bench: Bench) -> None:
    way = FakeWay()
    who = one(A, way)
    bench.tick(who)
    way.result = taken = bench.taken("hello")
    news = bench.until_news(who)
    assert news.kind == FAILED
    assert news.severity == "low"
    assert "is no trace that we read" in news.text
    assert not taken.path.exists()
    assert bench.taking.last is None
    bench.tick(who)
    assert len(way.asked) == 1


def test_what_can_never_be_parsed_is_reported_once(bench: Bench) -> None:
    for _ in range(3):
        way = FakeWay()
        who = one(A, way)
        bench.tick(who)
        way.result = bench.taken("hello")
        while bench.taking._turn is not None:
            bench.now -= 1.0
            bench.tick(who)
        bench.now += 1000.0
    assert len(bench.news) == 1


def dying(code: str, seconds: float) -> Callable[[dict[str, Any]], Parser]:
    return lambda order: Parser(order, (sys.executable, "-c", code), seconds)


@pytest.mark.parametrize(
    ("code", "seconds", "why"),
    [
        ("import os; os.kill(os.getpid(), 9)", 60.0, "ended by SIGKILL"),
        ("import time; time.sleep(100)", 0.0, "was not understood within 0 s"),
        ('print(\'{"failed": "it needs more memory"}\')', 60.0, "it needs more memory"),
    ],
)
def test_however_its_reader_ends_the_recording_goes_on_and_says_so(
    bench: Bench, code: str, seconds: float, why: str
) -> None:
    way = FakeWay()
    who = one(A, way)
    bench.taking.parse = dying(code, seconds)
    bench.tick(who)
    way.result = bench.taken()
    assert why in bench.until_news(who).text
    assert Space(bench.store).files() == []
    bench.taking.parse = Parser
    bench.news.clear()
    bench.now += 1000
    way.result = None
    bench.tick(who)
    assert len(way.asked) == 2


def being_read(bench: Bench) -> FakeWay:
    """Bring a trace as far as to its reader."""
    way = FakeWay()
    who = one(A, way)
    bench.tick(who)
    way.result = bench.taken()
    bench.tick(who)
    return way


def test_the_end_of_a_recording_leaves_no_half_of_a_trace(bench: Bench) -> None:
    bench.taking.parse = dying("import time; time.sleep(100)", 100.0)
    way = being_read(bench)
    turn = bench.taking._turn
    assert turn is not None
    assert turn.parser is not None
    bench.taking.close("the recording ended first")
    assert turn.parser._child.returncode is not None
    assert Space(bench.store).files() == []
    assert way.is_closed


def test_the_end_of_a_recording_waits_for_what_is_being_read(bench: Bench) -> None:
    being_read(bench)
    assert bench.taking.last is None
    assert [event.kind for event in bench.taking.finish()] == [TAKEN]
    assert bench.taking.last is not None
    assert bench.taking.finish() == []


def test_but_not_for_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyidle.monitor.tracing.scheduler.LAST_SECONDS", 0.0)
    bench.taking.parse = dying("import time; time.sleep(100)", 100.0)
    being_read(bench)
    assert bench.taking.finish() == []
    bench.taking.close("the recording ended first")
    assert Space(bench.store).files() == []


def test_a_full_disk_is_reported_once_and_asked_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whyidle.monitor.tracing.space.SPARE_BYTES", 1 << 60)
    way = FakeWay()
    for _ in range(1000):
        bench.tick(one(A, way))
    assert way.asked == []
    assert [n.kind for n in bench.news] == [FAILED]
    assert "has little room left" in bench.news[0].text


def test_files_of_a_run_of_the_same_number_in_a_store_that_is_gone_are_not_ours(
    bench: Bench,
) -> None:
    bench.taken()
    TraceScheduler(bench.store, bench.run, Policy(), lambda _: 0)
    assert Space(bench.store).files() == []

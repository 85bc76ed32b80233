"""A trace that a person waits for: taken whatever the policy says, with its progress reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracing.conftest import until
from tests.tracing.test_scheduler import A, B, Bench, FakeWay, dying, one
from whyidle.monitor.control.asked import State
from whyidle.monitor.store.stored_traces import Kept
from whyidle.monitor.tracing.policy import MOST_REFUSALS
from whyidle.monitor.tracing.scheduler import Candidate
from whyidle.monitor.tracing.trace_request import PATIENCE_SECONDS

EARLY = "too soon: the last one took 1 s, the next in 2 s"


class Wishing(Bench):
    """The GPUs give no sign for traces without a request: they are busy."""

    def request(self, seconds: float | None = None) -> None:
        self.taking.request.ask(7, seconds)

    def second(self, *at_once: Candidate) -> State:
        self.now += 1.0
        self.news += self.taking.tick(self.now, (), starved=False, at_once=at_once)
        return self.taking.request.progress.state

    def until_over(self, *at_once: Candidate) -> State:
        def ended() -> State | None:
            state = self.second(*at_once)
            return state if self.taking.request.progress.is_over else None

        return until(ended)

    @property
    def what(self) -> str:
        return self.taking.request.progress.what


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wishing:
    monkeypatch.setattr("whyidle.monitor.tracing.space.SPARE_BYTES", 0)
    return Wishing(tmp_path / "state" / "whyidle.db")


def test_it_is_taken_read_and_kept_and_each_state_is_reported(bench: Wishing) -> None:
    way = FakeWay()
    assert bench.taking.request.progress.state is State.NONE
    bench.request()
    assert bench.taking.request.progress.state is State.WAITING
    assert bench.second(one(A, way, step=0.2)) is State.TAKING
    assert way.asked == [pytest.approx(0.8)]
    way.result = bench.taken()
    assert bench.second() is State.READING
    assert bench.until_over() is State.KEPT
    with Kept.open(bench.store) as kept:
        (trace,) = kept.traces(bench.run)
    assert bench.taking.request.progress.trace == trace.id
    assert "the job paused for 9 ms" in bench.what
    assert bench.taking.request.progress.asked_ms == 7
    assert [news.kind for news in bench.news] == ["trace_taken"]
    # Once.
    assert bench.second(one(A, way)) is State.KEPT
    assert len(way.asked) == 1


def test_it_is_as_long_as_the_person_says(bench: Wishing) -> None:
    way = FakeWay()
    bench.request(3.5)
    bench.second(one(A, way, step=0.2))
    assert way.asked == [3.5]


def test_nor_a_share_of_nothing_nor_a_refusal_of_before_stands_against_it(bench: Wishing) -> None:
    bench.taking.policy.share = 0.0
    for _ in range(MOST_REFUSALS):
        bench.taking.policy.refused(A, bench.now, "the job profiles itself")
    bench.request()
    assert bench.second(one(A, FakeWay())) is State.TAKING


def test_what_it_cost_counts_for_those_that_nobody_asked_for(bench: Wishing) -> None:
    way = FakeWay()
    bench.request()
    bench.second(one(A, way))
    way.result = bench.taken()
    bench.until_over()
    unasked = FakeWay()
    bench.tick(one(B, unasked))
    assert unasked.asked == []


def test_it_waits_for_one_that_is_on_its_way(bench: Wishing) -> None:
    unasked, wished = FakeWay(), FakeWay()
    bench.tick(one(A, unasked))
    bench.request()
    assert bench.second(one(A, wished)) is State.WAITING
    unasked.result = "it rains"
    assert bench.second(one(A, wished)) is State.WAITING
    assert bench.second(one(A, wished)) is State.TAKING


@pytest.mark.parametrize("at", ["ask", "poll"])
def test_a_refusal_is_its_end_and_no_reason_not_to_ask_unasked(bench: Wishing, at: str) -> None:
    why = "the job profiles itself"
    way = FakeWay(why) if at == "ask" else FakeWay(result=why)
    bench.request()
    assert bench.until_over(one(A, way)) is State.REFUSED
    assert bench.what == "No trace of process 10: the job profiles itself."
    assert [news.text for news in bench.news] == [bench.what]
    assert way.is_closed
    assert bench.taking.policy.may_ask(A, bench.now)
    assert len(way.asked) == 1


def test_where_it_is_too_early_it_is_tried_again(bench: Wishing) -> None:
    bench.request()
    for _ in range(3):
        assert bench.second(one(A, FakeWay(EARLY))) is State.WAITING
    assert "too soon" in bench.what
    assert bench.second(one(A, FakeWay())) is State.TAKING


def test_but_not_for_ever(bench: Wishing) -> None:
    bench.request()
    bench.second(one(A, FakeWay(EARLY)))
    bench.now += PATIENCE_SECONDS
    assert bench.second(one(A, FakeWay(EARLY))) is State.REFUSED
    assert "too soon" in bench.what


def test_nor_is_somebody_waited_for_who_may_be_asked(bench: Wishing) -> None:
    bench.request()
    assert bench.second() is State.WAITING
    bench.now += PATIENCE_SECONDS
    assert bench.second() is State.REFUSED


def test_a_full_disk_is_reported_with_what_to_type(
    bench: Wishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whyidle.monitor.tracing.space.SPARE_BYTES", 1 << 60)
    bench.request()
    assert bench.second(one(A, FakeWay())) is State.REFUSED
    assert "has little room left" in bench.what
    assert "monitor prune" in bench.taking.request.progress.next_step


@pytest.mark.parametrize("code", ["import os; os.kill(os.getpid(), 9)", "print('{}')"])
def test_a_trace_that_nobody_understands_is_its_end(bench: Wishing, code: str) -> None:
    way = FakeWay()
    bench.taking.parse = dying(code, 60.0)
    bench.request()
    bench.second(one(A, way))
    way.result = bench.taken()
    assert bench.until_over() is State.REFUSED
    assert "not understood" in bench.what


def test_a_trace_that_is_understood_and_cannot_be_kept_is_none(bench: Wishing) -> None:
    way = FakeWay()
    bench.taking.run += 5
    bench.request()
    bench.second(one(A, way))
    way.result = bench.taken()
    assert bench.until_over() is State.REFUSED
    assert bench.what.endswith(f"could not be kept. There is no recording '{bench.taking.run}'.")
    assert bench.taking.request.progress.trace is None


@pytest.mark.parametrize("ticks", [0, 1, 2])
def test_so_is_the_end_of_the_recording_however_far_it_has_come(bench: Wishing, ticks: int) -> None:
    way = FakeWay(result=bench.taken())
    bench.taking.parse = dying("import time; time.sleep(100)", 100.0)
    bench.request()
    for _ in range(ticks):
        bench.second(one(A, way))
    bench.taking.close("the recording ended first")
    assert bench.taking.request.progress.state is State.REFUSED
    assert bench.what == "No trace: the recording ended first."

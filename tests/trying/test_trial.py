"""A whole try over a job that is played: its steps, its clock, and what becomes of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from whyidle.monitor.core.errors import Problem, TargetGone, UsageProblem
from whyidle.monitor.trying import trial as module
from whyidle.monitor.trying.blocks import SECOND, Step, Timeline
from whyidle.monitor.trying.knobs import KNOBS
from whyidle.monitor.trying.trial import YOU, Trial


class Job:
    """A job whose steps follow a clock of its own; it is line, switch and clock at once."""

    def __init__(self, off_s: float = 0.02, on_s: float = 0.015) -> None:
        self.now_s = 100.0
        self.lengths = {False: off_s, True: on_s}
        self.is_on = False
        self.timeline = Timeline()
        self.turns: list[bool] = []
        self.rng = random.Random(4)
        # Called as time passes.
        self.meanwhile: Callable[[], None] = lambda: None
        # The job does something else until then.
        self.rests_until = 0.0
        self.old = 1
        self.is_left = False
        self.is_kept = False
        self.link = type("Link", (), {"key": type("Key", (), {"pid": 7})})
        self.is_losing = False
        self.is_near = lambda: False

    # The line
    def ask(self, do: str, **_: object) -> dict[str, Any]:
        return {"ok": True}

    def flush(self) -> None:
        pass

    def wait(self, seconds: float) -> None:
        until = self.now_s + seconds
        while self.now_s < until:
            if self.now_s < self.rests_until:
                self.now_s = min(until, self.rests_until)
                continue
            took = self.lengths[self.is_on] * self.rng.gauss(1, 0.02)
            began = self.now_s
            self.now_s += took
            self.timeline.steps.append(Step(round(began * SECOND), round(self.now_s * SECOND), 1))
        self.meanwhile()

    # The switch
    def on(self) -> int:
        self.is_on = True
        self.turns.append(True)
        return self.monotonic_ns()

    def off(self) -> int:
        self.is_on = False
        self.turns.append(False)
        return self.monotonic_ns()

    def keep(self) -> None:
        self.is_kept = True

    # The clock
    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return round(self.now_s * SECOND)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    found = Job()
    monkeypatch.setattr(module, "time", found)
    return found


def tried(
    job: Job,
    *,
    keep: bool = False,
    seconds: float | None = 60.0,
    knob: str = "python.switch_interval",
) -> Any:
    played: Any = job
    trial = Trial(
        line=played,
        knob=KNOBS[knob],
        switch=played,
        seconds=seconds,
        seed=11,
        memory=played,
        begun=lambda: None,
        tell=lambda _what: None,
    )
    return trial.run(keep=keep)


def test_it_finds_what_the_change_gives_and_takes_it_back(job: Job) -> None:
    found = tried(job)
    assert found.estimate.low <= 4 / 3 <= found.estimate.high
    assert found.estimate.verdict == "faster"
    assert not job.is_on
    assert not job.is_kept
    # In turns, not one after the other.
    assert len(job.turns) > 8


def test_each_pair_is_told_with_what_there_is_by_then(job: Job) -> None:
    told: list[Any] = []
    played: Any = job
    trial = Trial(
        line=played, knob=KNOBS["python.switch_interval"], switch=played, seconds=60.0, seed=11,
        memory=played, begun=lambda: None, tell=lambda _what: None,
        paired=lambda plan, found, estimate: told.append((plan, found.pairs_s[-1], estimate)),
    )  # fmt: skip
    found = trial.run(keep=False)
    assert len(told) == len(found.measured.pairs_s) == len(found.measured.ratios)
    assert all(0.019 < without < 0.021 and 0.014 < on < 0.016 for _, (without, on), _ in told)
    assert told[0][2] is None
    assert told[-1][2].low <= 4 / 3 <= told[-1][2].high


def test_no_difference_is_an_answer(job: Job) -> None:
    job.lengths[True] = job.lengths[False]
    found = tried(job)
    assert found.estimate.verdict == "no difference"


def test_it_is_kept_if_asked_and_not_slower(job: Job) -> None:
    assert tried(job, keep=True).is_kept
    assert job.is_on
    assert job.is_kept


def test_what_slows_the_job_is_taken_back_soon_and_not_kept(job: Job) -> None:
    job.lengths[True] = 0.03
    found = tried(job, keep=True)
    assert "slower" in found.stopped
    assert not job.is_on
    assert not job.is_kept
    assert len(found.measured.ratios) == 2


def test_memory_near_its_limit_ends_it_at_once(job: Job) -> None:
    job.is_near = lambda: job.now_s > 110
    found = tried(job)
    assert found.stopped == "memory is near its limit"
    assert not job.is_on
    assert job.now_s < 114


def test_an_interrupt_ends_it_and_says_what_is_known(job: Job) -> None:
    def stop() -> None:
        if job.now_s > 115 and job.is_on:
            raise KeyboardInterrupt

    job.meanwhile = stop
    found = tried(job)
    assert found.stopped == YOU
    assert not job.is_on
    assert found.estimate is not None


@pytest.mark.parametrize("error", [TargetGone("gone"), SystemExit(0), RuntimeError("a defect")])
def test_whatever_ends_it_the_change_is_taken_back(job: Job, error: BaseException) -> None:
    def end() -> None:
        if job.is_on:
            raise error

    job.meanwhile = end
    with pytest.raises(type(error)):
        tried(job)
    assert not job.is_on


def test_while_the_job_does_something_else_it_is_off_and_waits(job: Job) -> None:
    seen: list[bool] = []

    def validate() -> None:
        if job.rests_until == 0.0 and job.is_on and job.now_s > 110:
            job.rests_until = job.now_s + 40
        if job.rests_until - 25 < job.now_s < job.rests_until:
            seen.append(job.is_on)

    job.meanwhile = validate
    found = tried(job)
    assert seen
    assert not any(seen)
    assert found.estimate.low <= 4 / 3 <= found.estimate.high


def test_a_job_that_never_comes_back_is_given_up(job: Job) -> None:
    def stand() -> None:
        if job.now_s > 110:
            job.rests_until = 1e9

    job.meanwhile = stand
    with pytest.raises(Problem, match="No step has ended"):
        tried(job)
    assert not job.is_on


def test_without_known_steps_it_is_refused_with_what_to_do(job: Job) -> None:
    job.rests_until = 1e9
    with pytest.raises(UsageProblem, match="No steps") as refused:
        tried(job)
    assert "whyidle.step()" in refused.value.next_step
    assert job.turns == []


def test_steps_that_come_too_fast_are_said_to_and_not_that_there_are_none(job: Job) -> None:
    job.rests_until = 1e9
    job.is_losing = True
    with pytest.raises(UsageProblem, match="faster than they are counted") as refused:
        tried(job)
    assert "each hundredth" in refused.value.next_step

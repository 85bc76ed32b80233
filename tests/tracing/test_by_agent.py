"""A trace through the agent: what is asked, what comes, and what a hostile job may forge."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tracing.conftest import Tracer, until
from whyidle.agents import wire
from whyidle.monitor.app import take
from whyidle.monitor.link.link import Link
from whyidle.monitor.tracing import by_agent
from whyidle.monitor.tracing.by_agent import ByAgent
from whyidle.monitor.tracing.space import Space, of_run
from whyidle.monitor.tracing.taken import Taken


class Bench:
    """A way, and its link exchanged before each poll as a recorder does."""

    def __init__(self, link: Link, space: Space) -> None:
        self.link = link
        self.space = space
        self.way = ByAgent(link, space, of_run(7), share=0.01)

    def poll(self) -> Taken | str | None:
        self.link.exchange()
        return self.way.poll()

    def refused(self) -> str:
        found = until(self.poll)
        assert isinstance(found, str), found
        # Nothing of it is left.
        assert self.space.files() == []
        return found

    def taken(self) -> Taken:
        found = until(self.poll)
        assert isinstance(found, Taken), found
        return found

    def until_promised(self) -> None:
        def promised() -> bool | None:
            assert self.poll() is None
            return self.way._id is not None or None

        assert until(promised)


@pytest.fixture
def bench(link: Link, space: Space) -> Bench:
    found = Bench(link, space)
    assert found.way.ask(0.25) is None
    found.until_promised()
    return found


def test_a_trace_comes_as_a_file_of_ours_and_the_agent_may_drop_its_own(
    agent: Tracer, bench: Bench
) -> None:
    agent.takes(text="[]" * 1000)
    taken = bench.taken()
    assert taken.path.read_text() == "[]" * 1000
    assert taken.path.parent == bench.space.folder
    assert stat.S_IMODE(taken.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(bench.space.folder.stat().st_mode) == 0o700
    assert taken.framework == "torch"
    assert taken.held_ns == 12_000_000
    assert taken.ended_ns - taken.began_ns == 250_000_000
    assert taken.ended_ns < time.monotonic_ns()
    (asked,) = agent.was_asked("trace")
    assert asked == {"do": "trace", "seconds": 0.25, "share": 0.01}
    until(lambda: agent.was_asked("drop") or None)
    until(lambda: None if agent.file().exists() else True)


def test_a_second_trace_of_the_same_process_has_a_number_of_its_own(
    agent: Tracer, bench: Bench
) -> None:
    agent.takes(1, "first")
    assert bench.taken().path.read_text() == "first"
    assert bench.way.ask(0.25) is None
    bench.until_promised()
    agent.takes(2, "second")
    assert bench.taken().path.read_text() == "second"


def test_the_agents_refusal_is_passed_on(agent: Tracer, link: Link, space: Space) -> None:
    bench = Bench(link, space)
    agent.refusal = "the job's own profiler\nruns"
    assert bench.way.ask(0.25) is None
    assert bench.refused() == "the job's own profiler runs"


def test_a_trace_that_failed_says_why(agent: Tracer, bench: Bench) -> None:
    agent.write("trace", 1, "begun", {})
    agent.write("trace", 1, "failed", {"why": "the user began to profile"})
    assert bench.refused() == "the user began to profile"


def test_a_trace_of_somebody_else_is_not_ours(agent: Tracer, bench: Bench) -> None:
    agent.takes(55, "theirs")
    agent.takes(1, "ours")
    assert bench.taken().path.read_text() == "ours"
    assert agent.file(55).exists()


def test_no_second_trace_is_asked_for_while_one_is_on_its_way(bench: Bench) -> None:
    assert bench.way.ask(0.25) == "a trace is on its way already"


def test_an_agent_that_goes_has_no_trace(agent: Tracer, bench: Bench) -> None:
    agent.end("lease")
    assert bench.refused() == "the agent went before the trace was done"
    assert bench.way.ask(0.25) == "the agent has gone"


def test_an_agent_that_never_says_what_became_of_it_is_not_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.way, "_deadline", time.monotonic() - 1)
    assert bench.refused() == "the agent did not say in time what became of it"


def test_a_trace_that_is_given_up_is_dropped(agent: Tracer, bench: Bench) -> None:
    bench.way.close()
    assert until(lambda: agent.was_asked("drop") or None) == [{"do": "drop", "id": 1}]


def test_a_person_waits_for_the_trace_of_another_one(
    agent: Tracer, link: Link, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["a trace is on, and there is one at a time", "too soon: next in 0.3 s"])
    usual = agent._answer

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        if message["do"] == "trace" and (why := next(answers, None)) is not None:
            return {"ok": False, "why": why}
        found = usual(message)
        if message["do"] == "trace":
            agent.takes(found["id"], "ours")
        return found

    monkeypatch.setattr(agent, "_answer", answer)
    taken = take._from_agent(take._Listener(link), space, of_run(7), 0.25)
    assert taken.path.read_text() == "ours"
    assert len(agent.was_asked("trace")) == 3


# Hostile jobs ------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "socket"])
def test_what_is_no_plain_file_is_left_alone(
    agent: Tracer, bench: Bench, kind: str, tmp_path: Path
) -> None:
    path = agent.file()
    if kind == "link":
        secret = tmp_path / "secret"
        secret.write_text("not for us")
        path.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mknod(path, stat.S_IFSOCK | 0o600)
    agent.says_done()
    assert "it is left alone" in bench.refused()
    if kind == "folder":
        path.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_a_file_of_another_user_is_left_alone(agent: Tracer, bench: Bench) -> None:
    agent.file().write_text("[]")
    os.chown(agent.file(), 65534, 65534)
    agent.says_done()
    assert "it is left alone" in bench.refused()


def test_a_file_that_has_vanished_is_none(agent: Tracer, bench: Bench) -> None:
    agent.says_done()
    assert bench.refused() == "the file of the trace has gone before it was fetched"


def test_an_empty_file_is_no_trace(agent: Tracer, bench: Bench) -> None:
    agent.takes(text="")
    assert bench.refused() == "the file of the trace is empty"


def test_a_file_that_is_too_long_is_not_copied(agent: Tracer, bench: Bench) -> None:
    with agent.file().open("wb") as file:
        file.truncate(wire.TRACE_FILE_CAP + 1)
    agent.says_done()
    assert bench.refused() == "the file of the trace is longer than 256 MB"


def test_no_more_is_copied_than_the_file_had(
    agent: Tracer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One piece at a time: the file grows meanwhile.
    monkeypatch.setattr(by_agent, "COPY_SECONDS", 0.0)
    monkeypatch.setattr(by_agent, "_PIECE", 4)
    with agent.file().open("w") as file:
        file.write("12345678")
        file.flush()
        agent.says_done()
        until(lambda: bench.poll() or bench.way._copy)
        file.write("more and more")
        file.flush()
        assert bench.taken().path.read_text() == "12345678"


def test_a_file_that_is_cut_while_it_is_copied_is_none(
    agent: Tracer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_agent, "COPY_SECONDS", 0.0)
    monkeypatch.setattr(by_agent, "_PIECE", 4)
    agent.takes(text="12345678" * 100)
    handle = os.open(agent.file(), os.O_WRONLY)
    until(lambda: bench.poll() or bench.way._copy)
    os.ftruncate(handle, 0)
    os.close(handle)
    assert bench.refused() == "the file of the trace was cut while it was fetched"


def test_a_large_file_takes_several_ticks(
    agent: Tracer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_agent, "COPY_SECONDS", 0.0)
    agent.takes(text="x" * (3 << 20))
    until(lambda: bench.poll() or bench.way._copy)
    assert bench.poll() is None
    assert bench.taken().path.stat().st_size == 3 << 20


@pytest.mark.parametrize(
    "facts",
    [
        {"began_ns": -5, "ended_ns": 2**62, "realtime_ns": 0, "held_ns": 2**62},
        {"began_ns": "x", "ended_ns": None, "realtime_ns": [], "held_ns": 1.5},
        {"began_ns": 2**63 - 1, "ended_ns": 0, "realtime_ns": 2**63 - 1, "held_ns": True},
    ],
)
def test_moments_that_cannot_be_are_not_believed(
    agent: Tracer, bench: Bench, facts: dict[str, object]
) -> None:
    before = time.monotonic_ns()
    agent.file().write_text("[]")
    agent.says_done(**facts)
    taken = bench.taken()
    assert before <= taken.began_ns <= taken.ended_ns <= time.monotonic_ns()
    assert abs(taken.realtime_ns - time.time_ns()) < 60e9
    assert taken.held_ns is None


@pytest.mark.parametrize("framework", ["../../x", None, 5, "mxnet"])
def test_a_framework_that_nobody_knows_names_no_file(
    agent: Tracer, bench: Bench, framework: object
) -> None:
    agent.file().write_text("[]")
    agent.says_done(framework=framework)
    assert bench.refused() == "the agent names no framework that we know"


def test_a_name_that_the_job_gives_steers_nothing(
    agent: Tracer, bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("not for us")
    agent.says_done(file=str(tmp_path / "secret"))
    assert bench.refused() == "the file of the trace has gone before it was fetched"


def test_a_full_disk_takes_no_trace(
    agent: Tracer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whyidle.monitor.tracing.space.SPARE_BYTES", 1 << 60)
    agent.takes()
    assert "has no room for it" in bench.refused()
